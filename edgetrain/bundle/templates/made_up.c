/* Samples out of a counter, the same everywhere, for the digest of MANIFEST.json. Numbers of sample
   0 are SPIKE times as large: one of fp16 overflows by it, and its minibatch is skipped. */
#ifndef SPIKE
#define SPIKE 1
#endif
static uint32_t mixed(uint32_t v) {
  v = (v ^ v >> 16) * 0x21F0AAADu;
  v = (v ^ v >> 15) * 0x735A2D97u;
  return v ^ v >> 15;
}
static int made_up(void *user, int split, int64_t sample, void *x, void *y) {
  uint32_t key = (uint32_t)sample * 0x9E3779B9u;
  (void)user, (void)split;
${made_up}  return 0;
}
