/* A Nucleo-H743ZI2 without a vendor's library: vectors, reset, text on USART3 (PD8, the debugger's
   serial port, 115200 baud at the 64 MHz of reset), and a store of the last two sectors of flash.
   Register addresses and bits: STMicroelectronics RM0433. */
#define STM32H743
#include "board.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define RCC_AHB4ENR REGISTER(0x580244E0)
#define RCC_APB1LENR REGISTER(0x580244E8)
#define GPIOD_MODER REGISTER(0x58020C00)
#define GPIOD_AFRH REGISTER(0x58020C24)
#define USART3_CR1 REGISTER(0x40004800)
#define USART3_BRR REGISTER(0x4000480C)
#define USART3_ISR REGISTER(0x4000481C)
#define USART3_TDR REGISTER(0x40004828)
#define FLASH_KEYR2 REGISTER(0x52002104)
#define FLASH_CR2 REGISTER(0x5200210C)
#define FLASH_SR2 REGISTER(0x52002110)
#define FLASH_CCR2 REGISTER(0x52002114)

extern uint32_t _estack, _sbss, _ebss;
int main(void);

__asm__(".section .rodata\n.balign 8\n.global " NET_SAMPLES "\n" NET_SAMPLES ":\n"
        ".incbin \"" SAMPLES "\"\n.previous");

void board_print(const char *text) {
  for (; *text != 0; text++) {
    while ((USART3_ISR & 1u << 7) == 0) {}
    USART3_TDR = (unsigned char)*text;
  }
}

/* Two sectors of bank 2. A program runs from bank 1 meanwhile. */
#define SECTOR 0x20000u
_Static_assert(ACTIVITY_STORED <= SECTOR, "a state is larger than a sector");
static volatile uint32_t *slot_at(int slot, uint32_t offset) {
  return (volatile uint32_t *)(0x081C0000u + (uint32_t)slot * SECTOR + offset);
}
static int finished(void) {
  while ((FLASH_SR2 & 5u) != 0) {} /* BSY, QW */
  uint32_t errors = FLASH_SR2 & 0x07EE0000u;
  FLASH_CCR2 = 0x0FEF0000u;
  return errors != 0;
}
static void unlock(void) {
  if ((FLASH_CR2 & 1u) != 0) FLASH_KEYR2 = 0x45670123u, FLASH_KEYR2 = 0xCDEF89ABu;
}
static int erase(void *user, int slot) {
  (void)user;
  unlock();
  if (finished()) return 1;
  FLASH_CR2 = 1u << 2 | 2u << 4 | (6u + (uint32_t)slot) << 8; /* SER, 32 bits at a time, sector */
  FLASH_CR2 |= 1u << 7;
  int failed = finished();
  FLASH_CR2 = 1u;
  return failed;
}
static int write(void *user, int slot, uint32_t offset, const void *data, uint32_t bytes) {
  (void)user;
  volatile uint32_t *to = slot_at(slot, offset);
  const uint32_t *from = data;
  int failed = 0;
  unlock();
  FLASH_CR2 = 1u << 1 | 2u << 4;
  for (uint32_t word = 0; word < bytes / 4 && !failed; word += 8) { /* a flash word: 32 bytes */
    for (uint32_t k = 0; k < 8; k++) to[word + k] = from[word + k];
    __asm__ volatile("dsb" ::: "memory");
    failed = finished();
  }
  FLASH_CR2 = 1u;
  return failed;
}
static int read(void *user, int slot, uint32_t offset, void *data, uint32_t bytes) {
  (void)user;
  const volatile uint32_t *from = slot_at(slot, offset);
  for (uint32_t k = 0; k < bytes / 4; k++) ((uint32_t *)data)[k] = from[k];
  return 0;
}
static const activity_store store = {NULL, erase, write, read};
const activity_store *const board_store = &store;

__attribute__((used, noreturn)) static void start(void) {
  for (uint32_t *p = &_sbss; p < &_ebss; p++) *p = 0;
  RCC_AHB4ENR |= 1u << 3;
  RCC_APB1LENR |= 1u << 18;
  (void)RCC_APB1LENR;
  GPIOD_MODER = (GPIOD_MODER & ~(3u << 16)) | 2u << 16;
  GPIOD_AFRH = (GPIOD_AFRH & ~15u) | 7u;
  USART3_BRR = 64000000u / 115200u;
  USART3_CR1 = 1u | 1u << 3;
  board_print(main() == 0 ? "done\n" : "failed\n");
  for (;;) __asm__ volatile("wfi");
}

/* The unit for floats is switched on before anything runs that uses it. */
__attribute__((naked, noreturn, used)) static void reset(void) {
  __asm__ volatile(
      "ldr r0, =0xE000ED88\n ldr r1, [r0]\n orr r1, r1, #0xF00000\n str r1, [r0]\n dsb\n isb\n"
      "b start\n");
}

static void fault(void) {
  for (;;) {}
}

__attribute__((section(".vectors"), used)) static const struct {
  uint32_t *stack;
  void (*handlers[15])(void);
} vectors = {&_estack, {reset, fault, fault, fault, fault, fault}};
