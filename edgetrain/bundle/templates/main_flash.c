/* Trains ${net} on samples in flash: ${net}_samples, such as ${net}.samples included with .incbin.
   Your board's file defines these samples, board_print and board_store (may be NULL).
   -DCHECK: train on generated samples, for the digest in MANIFEST.json; -DSTEPS=N: minibatches. */
#include "${net}.h"

void board_print(const char *text);
extern const ${net}_store *const board_store;
#ifndef STEPS
#define STEPS 200
#endif
${lengths_part}#ifdef CHECK
${made_up_part}#else
${sample_part}#endif

static void print(const char *name, uint32_t value, uint32_t base) {
  char text[12], *at = text + sizeof text - 1;
  *at = 0;
  do *--at = "0123456789abcdef"[value % base]; while ((value /= base) != 0);
  board_print(name);
  board_print(at);
  board_print("\n");
}

/* value * by, rounded, for value >= 0; without double arithmetic, which many boards lack. */
static uint32_t scaled(double value, uint32_t by) {
  union { double value; uint64_t bits; } of = {value};
  int down = 1067 - (int)(of.bits >> 52 & 0x7FF);
  uint64_t whole = ((of.bits & 0xFFFFFFFFFFFFFu) | 0x10000000000000u) >> 8;
  if (down < 1 || down > 63) return 0;
  return (uint32_t)((whole * by + (1ull << (down - 1))) >> down);
}

static union { uint64_t align; unsigned char bytes[${NET}_MEMORY]; } memory;
${return_part}
int main(void) {
  ${net}_report report;
  ${net} *net = ${net}_init(&memory, sizeof memory);
#ifdef CHECK
  if (net == NULL || ${made_up_data}) return 1;
#else
  if (net == NULL || open_samples(net)) return 1;
#endif
  ${net}_settings(net, ${NET}_LR, ${NET}_CONSTANT, STEPS, 0, 0, 0);
  if (board_store != NULL && ${net}_load(net, board_store) == ${NET}_FAILED) return 1;
  ${net}_progress(net, &report);
${first_state}  while (report.step < STEPS) {
    int status = ${advance}; /* serve the watchdog, the radio, etc. here */
    if (status != ${NET}_MORE && status != ${NET}_DONE) return 1;
    ${net}_progress(net, &report);${kept_state}
  }
  if (board_store != NULL && ${net}_save(net, board_store) != ${NET}_DONE) return 1;
  print("loss*1000 ", scaled(report.loss, 1000), 10);
#ifndef CHECK
  double loss, accuracy;
  if (${held}${net}_eval(net, &loss, &accuracy) == ${NET}_DONE)
    ${judged}
#endif
  print("digest ", ${net}_digest(net), 16);
  return 0;
}
