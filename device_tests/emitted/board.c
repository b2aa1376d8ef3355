/* What main.c needs of a bare Cortex-M: vectors, the float unit switched on, semihosting. */
#include <stdint.h>

extern uint32_t stack_low[], stack_top[], bss_start[], bss_end[];
int main(void);
void say(const char *name, uint32_t value);

static int host(int number, const void *given) {
  register int r0 __asm__("r0") = number;
  register const void *r1 __asm__("r1") = given;
  __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void say(const char *name, uint32_t value) {
  char text[12] = " ";
  for (int k = 0; k < 8; k++) text[1 + k] = "0123456789abcdef"[value >> (28 - 4 * k) & 15];
  text[9] = '\n', text[10] = 0;
  host(4, name);
  host(4, text);
}

/* 25 MHz of the board's FPGA: 40 instructions each where qemu counts one in a nanosecond */
uint32_t ticks(void) { return COUNTER ? *(volatile uint32_t *)COUNTER : 0; }

static void end(int reason) {
  host(0x18, (void *)(uintptr_t)reason);
  for (;;) {}
}

__attribute__((used, noreturn)) static void begin(void) {
  for (uint32_t *p = bss_start; p < bss_end; p++) *p = 0;
  main();
  uint32_t *low = stack_low;
  while (*low == 0xDEADBEEF) low++;
  say("stack", (uint32_t)stack_top - (uint32_t)low);
  end(0x20026);
  for (;;) {}
}

__attribute__((naked, noreturn)) static void reset(void) {
  __asm__ volatile(
      "ldr r0, =0xE000ED88\n ldr r1, [r0]\n orr r1, r1, #0xF00000\n str r1, [r0]\n dsb\n isb\n"
      "ldr r0, =stack_low\n mov r1, sp\n ldr r2, =0xDEADBEEF\n"
      "1: cmp r0, r1\n bhs 2f\n str r2, [r0], #4\n b 1b\n2: b begin\n");
}

static void fault(void) {
  say("fault", *(volatile uint32_t *)0xE000ED28);
  end(0x20023);
}

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_top, reset, fault, fault, fault, fault, fault};

/* gcc makes loops into these */
void *memset(void *to, int value, unsigned n) {
  for (unsigned char *p = to; n--;) *p++ = value;
  return to;
}
void *memcpy(void *to, const void *from, unsigned n) {
  const unsigned char *q = from;
  for (unsigned char *p = to; n--;) *p++ = *q++;
  return to;
}
