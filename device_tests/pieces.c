/* Polls STEPS minibatches of made-up samples: prints which poll of the last one took longest. */
#include "board.h"

#ifndef PARTS
#define PARTS 1
#endif
const digits_store *const board_store = NULL;
void board_print(const char *text);
static union { uint64_t align; unsigned char bytes[DIGITS_MEMORY]; } memory;

static void print(const char *name, uint32_t value) {
  char text[12], *at = text + sizeof text - 1;
  *at = 0;
  do *--at = (char)('0' + value % 10); while ((value /= 10) != 0);
  board_print(name), board_print(at), board_print("\n");
}
static int fill(void *user, int split, int64_t sample, void *x, void *y) {
  (void)user, (void)split;
  for (int e = 0; e < DIGITS_X; e++) ((float *)x)[e] = (float)((sample * 37 + e * e) % 19) / 9 - 1;
  *(int32_t *)y = (int32_t)(sample % 10);
  return 0;
}

int main(void) {
  digits *net = digits_init(&memory, sizeof memory);
  if (digits_data(net, fill, NULL, 4 * DIGITS_MINIBATCH, 0) || digits_split(net, PARTS)) return 1;
  uint32_t longest = 0, which = 0, polls = 0;
  for (int status = DIGITS_MORE; status == DIGITS_MORE; polls++) {
    uint32_t begun = *(volatile uint32_t *)COUNTER;
    status = digits_poll(net);
    uint32_t ticks = *(volatile uint32_t *)COUNTER - begun;
    if (ticks > longest) longest = ticks, which = polls;
    if (status < 0 && status != DIGITS_MORE) return 2;
  }
  print("longest ", longest);
  print("which ", which);
  print("polls ", polls);
  return 0;
}
