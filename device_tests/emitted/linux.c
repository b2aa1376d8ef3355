/* What main.c needs of an operating system. */
#include <stdint.h>
#include <stdio.h>

void say(const char *name, uint32_t value) { printf("%s %08x\n", name, value); }
uint32_t ticks(void) { return 0; }
