/* A Cortex-M board as qemu's MPS2 machines are: vectors, reset, semihosting, samples in flash.
   For a board of your own, replace this file and board.ld: what NAME.h asks of them is board_print,
   board_store (or NULL) and, without -DCHECK, the samples. */
#include "board.h"

extern uint32_t _estack, _sstack, _sbss, _ebss;
int main(void);

#ifdef SAMPLES
__asm__(".section .rodata\n.balign 8\n.global " NET_SAMPLES "\n" NET_SAMPLES ":\n"
        ".incbin \"" SAMPLES "\"\n.previous");
#endif

static int semihosting(int operation, const void *argument) {
  register int r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}
void board_print(const char *text) { semihosting(4, text); }

static void number(const char *name, uint32_t value) {
  char text[12], *at = text + sizeof text - 1;
  *at = 0;
  do *--at = (char)('0' + value % 10); while ((value /= 10) != 0);
  board_print(name);
  board_print(at);
  board_print("\n");
}

/* Words of the stack that were never written still hold this. */
#define PAINT 0xDEADBEEF
static uint32_t stack_nbytes(void) {
  const uint32_t *at = &_sstack;
  while (*at == PAINT) at++;
  return (uint32_t)&_estack - (uint32_t)at;
}

__attribute__((used, noreturn)) static void start(void) {
  for (uint32_t *p = &_sbss; p < &_ebss; p++) *p = 0;
  uint32_t begun = *(volatile uint32_t *)COUNTER;
  int status = main();
  number("ticks ", *(volatile uint32_t *)COUNTER - begun);
  number("stack ", stack_nbytes());
  number("ram ", (uint32_t)&_ebss - (uint32_t)&_sbss);
  number("status ", (uint32_t)status);
  semihosting(0x18, (const void *)0x20026);
  for (;;) {}
}

/* The unit for floats is switched on and the stack painted before anything runs on it. */
__attribute__((naked, noreturn)) static void reset(void) {
  __asm__ volatile(
      "ldr r0, =0xE000ED88\n ldr r1, [r0]\n orr r1, r1, #0xF00000\n str r1, [r0]\n dsb\n isb\n"
      "ldr r0, =_sstack\n ldr r1, =_estack\n ldr r2, =0xDEADBEEF\n"
      "1: cmp r0, r1\n bhs 2f\n str r2, [r0], #4\n b 1b\n2: b start\n");
}

static void fault(void) {
  board_print("fault\n"); /* or the stack is full */
  number("cfsr ", *(volatile uint32_t *)0xE000ED28);
  semihosting(0x18, (const void *)0x20023);
  for (;;) {}
}

__attribute__((section(".vectors"), used)) static const struct {
  uint32_t *stack;
  void (*handlers[15])(void);
} vectors = {&_estack, {reset, fault, fault, fault, fault, fault}};
