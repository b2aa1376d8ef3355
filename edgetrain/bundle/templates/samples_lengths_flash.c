/* Samples in flash. For each length, the shortest first: a header of 32 bytes, then raw values,
   training samples first. */
extern const unsigned char ${net}_samples[];
static struct { uint32_t magic, train, held, type; float factor, shift; uint32_t bytes, zero; } samples[${NET}_LENGTHS];
static const unsigned char *starts[${NET}_LENGTHS];

static void copy(void *to, const void *from, size_t bytes) {
  unsigned char *t = to;
  const unsigned char *f = from;
  while (bytes-- > 0) *t++ = *f++;
}

static int fill(void *user, int split, int64_t sample, void *x, void *y) {
  int64_t first;
  int at = length_of(split, sample, &first);
  (void)user;
  sample += split == 0 ? samples[at].train - first : -first;
  const unsigned char *from = starts[at] + (uint32_t)sample * samples[at].bytes;
${copies}  return 0;
}

static int open_samples(${net} *net) {
  const unsigned char *place = ${net}_samples;
  for (int k = 0; k < ${NET}_LENGTHS; k++) {
    copy(&samples[k], place, 32);
    if (samples[k].magic != 0x4D534445) return 1;
    starts[k] = place + 32;
    place = starts[k] + samples[k].bytes * (samples[k].train + samples[k].held);
    counts[0][k] = samples[k].held;
    counts[1][k] = samples[k].train;
  }
  return ${net}_data(net, fill, NULL, counts[1], counts[0]);
}
