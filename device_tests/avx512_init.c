/* The first process of avx512.py's PC: runs each line of /programs, then switches the PC off. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define MOST 16 /* arguments of a program */
#define SHUTDOWN_PORT 0x8900

static void child(char *line) {
    char *arguments[MOST + 1] = {0};
    int count = 0;
    for (char *word = strtok(line, " \n"); word && count < MOST; word = strtok(NULL, " \n"))
        arguments[count++] = word;
    if (count)
        execv(arguments[0], arguments);
    _exit(127);
}

int main(void) {
    char line[4096];
    mkdir("/dev", 0755);
    mkdir("/proc", 0755);
    mount("dev", "/dev", "devtmpfs", 0, "");
    mount("proc", "/proc", "proc", 0, ""); /* programs read their weights from /proc/self/exe */
    int serial = open("/dev/ttyS0", O_WRONLY);
    dup2(serial, 1);
    dup2(serial, 2);
    dprintf(1, "\n=== begin\n");
    FILE *programs = fopen("/programs", "r");
    while (programs && fgets(line, sizeof line, programs)) {
        int status = -1;
        pid_t started = fork();
        if (!started)
            child(line);
        waitpid(started, &status, 0);
        dprintf(1, "\n=== status %u\n", (unsigned)status);
    }
    dprintf(1, "=== end\n");
    tcdrain(1);
    sleep(1);
    iopl(3);
    for (const char *c = "Shutdown"; *c; c++)
        outb(*c, SHUTDOWN_PORT);
    for (;;)
        pause();
}
