/* Samples in flash: a header of 32 bytes, then raw values, training samples first. */
extern const unsigned char ${net}_samples[];
static struct { uint32_t magic, train, held, type; float factor, shift; uint32_t bytes, zero; } samples;

static void copy(void *to, const void *from, size_t bytes) {
  unsigned char *t = to;
  const unsigned char *f = from;
  while (bytes-- > 0) *t++ = *f++;
}

static int fill(void *user, int split, int64_t sample, void *x, void *y) {
  (void)user;
  if (split == 0) sample += samples.train;
  const unsigned char *record = ${net}_samples + sizeof samples + (uint32_t)sample * samples.bytes;
${copies}  return 0;
}

static int open_samples(${net} *net) {
  copy(&samples, ${net}_samples, sizeof samples);
  if (samples.magic != 0x4D534445) return 1;
  if (samples.bytes != (samples.type == ${NET}_U8 ? ${record_least} : ${record_most})) return 1;
  if (samples.type == ${NET}_U8 && ${net}_input(net, 0, ${NET}_U8, &samples.factor, &samples.shift, 1, 1))
    return 1;
  return ${net}_data(net, fill, NULL, samples.train, samples.held);
}
