/* A step of the bundle `net` for each line that comes in; says its seconds and those of processors. */
#define main shipped
#include "main.c"
#undef main
#include <time.h>

static double seconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(void) {
  static union { double align; unsigned char bytes[NET_MEMORY]; } memory;
  if (find_weights("/proc/self/exe")) return fail("no weights");
  net *model = net_open(&memory, sizeof memory, read_weights, NULL);
  close(weights.fd);
#if NET_THREADS > 1
  if (start_threads(model)) return fail("no threads");
#endif
  net_settings(model, NET_LR, NET_CONSTANT, 1000, 0, 0, 0);
  net_data(model, made_up, NULL, 4 * NET_MINIBATCH, 0);
  for (int c; (c = getchar()) != EOF;) {
    if (c != '\n') continue;
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    if (net_step(model) != NET_DONE) return fail("a step was refused");
    wall = seconds(CLOCK_MONOTONIC) - wall;
    printf("%.9f %.9f\n", wall, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    fflush(stdout);
  }
  return 0;
}
