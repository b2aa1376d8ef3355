/* Generated samples, the same everywhere, for the digest in MANIFEST.json. With -DSPIKE=1e38f, the
   values of sample 0 are 1e38 or -1e38: its minibatches overflow and are skipped. */
#ifdef SPIKE
#define SPIKED(value) (sample != 0 ? (value) : (value) < 0 ? -SPIKE : SPIKE)
#else
#define SPIKED(value) (value)
#endif
static uint32_t mixed(uint32_t v) {
  v = (v ^ v >> 16) * 0x21F0AAADu;
  v = (v ^ v >> 15) * 0x735A2D97u;
  return v ^ v >> 15;
}
static int made_up(void *user, int split, int64_t sample, void *x, void *y) {
  uint32_t key = (uint32_t)sample * 0x9E3779B9u;
${made_up_size}${made_up}  return 0;
}
${made_up_more}