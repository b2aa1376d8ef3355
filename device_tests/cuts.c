/* CUTS times: a net of digits takes up its state, trains a step, saves it, and loses power at a
   random write of a flash that is emulated in RAM. Prints how many it outlived. */
#include "board.h"

#define PAGE 256
#define MOST 12
#ifndef CUTS
#define CUTS 50
#endif
const digits_store *const board_store = NULL;
void board_print(const char *text);

static union { uint64_t align; unsigned char bytes[DIGITS_MEMORY]; } memory;
static unsigned char flash[2][DIGITS_STORED];
static int32_t left = INT32_MAX; /* writes until the power goes; below 0: it is gone */
static uint32_t drawn = 1;

static uint32_t draw(uint32_t below) {
  drawn = drawn * 1664525 + 1013904223;
  return (drawn >> 8) % below;
}
/* How many of n bytes are still written. */
static uint32_t powered(uint32_t n) {
  left--;
  return left >= 0 ? n : left == -1 ? draw(n + 1) : 0;
}
static int erase(void *user, int slot) {
  uint32_t n = powered(DIGITS_STORED);
  (void)user;
  for (uint32_t k = 0; k < n; k++) flash[slot][k] = 0xFF;
  return left < 0;
}
static int write(void *user, int slot, uint32_t offset, const void *data, uint32_t bytes) {
  const unsigned char *from = data;
  (void)user;
  for (uint32_t at = 0; at < bytes; at += PAGE) {
    uint32_t n = powered(bytes - at < PAGE ? bytes - at : PAGE);
    for (uint32_t k = 0; k < n; k++) flash[slot][offset + at + k] &= from[at + k];
    if (left < 0) return 1;
  }
  return 0;
}
static int read(void *user, int slot, uint32_t offset, void *data, uint32_t bytes) {
  unsigned char *to = data;
  (void)user;
  for (uint32_t k = 0; k < bytes; k++) to[k] = flash[slot][offset + k];
  return 0;
}
static const digits_store store = {NULL, erase, write, read};

static int fill(void *user, int split, int64_t sample, void *x, void *y) {
  (void)user, (void)split;
  for (int e = 0; e < DIGITS_X; e++) ((float *)x)[e] = (float)((sample * 37 + e * e) % 19) / 9 - 1;
  *(int32_t *)y = (int32_t)(sample % 10);
  return 0;
}
static digits *begun(void) {
  digits *net = digits_init(&memory, sizeof memory);
  digits_data(net, fill, NULL, 4 * DIGITS_MINIBATCH, 0);
  return net;
}

int main(void) {
  static uint32_t expected[MOST + 1];
  digits_report report;
  digits *net = begun();
  int64_t newest = 0;
  for (int k = 0; k <= MOST; k++) expected[k] = digits_digest(net), digits_step(net);
  for (int cut = 0; cut < CUTS; cut++) {
    net = begun();
    if (digits_load(net, &store) == DIGITS_FAILED) return 2;
    digits_progress(net, &report);
    if (report.step != newest && report.step != newest + 1) return 3;
    newest = report.step;
    if (digits_digest(net) != expected[newest]) return 4;
    if (newest == MOST) newest = -1, cut--, flash[0][0] = flash[1][0] = 0;
    left = (int32_t)draw(DIGITS_STORED / PAGE + 24);
    if (newest >= 0 && digits_step(net) == DIGITS_DONE && digits_save(net, &store) == DIGITS_DONE)
      cut--; /* it was saved before the power went */
    if (newest < 0) newest = 0;
    left = INT32_MAX;
  }
  board_print("outlived all\n");
  return 0;
}
