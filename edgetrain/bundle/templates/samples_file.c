/* A file of samples: a header of 32 bytes, then raw values, training samples first. */
static struct { uint32_t magic, train, held, type; float factor, shift; uint32_t bytes, zero; } samples;
static int samples_fd;

static int fill(void *user, int split, int64_t sample, void *x, void *y) {
  unsigned char record[${record_most}];
  (void)user;
  if (split == 0) sample += samples.train;
  off_t at = (off_t)sizeof samples + (off_t)sample * samples.bytes;
  if (pread(samples_fd, record, samples.bytes, at) != (ssize_t)samples.bytes) return 2;
${copies}  return 0;
}

static int open_samples(${net} *net, const char *name) {
  samples_fd = open(name, O_RDONLY);
  if (samples_fd < 0 || read(samples_fd, &samples, sizeof samples) != sizeof samples) return 1;
  if (samples.magic != 0x4D534445) return 1;
  if (samples.bytes != (samples.type == ${NET}_U8 ? ${record_least} : ${record_most})) return 1;
  if (samples.type == ${NET}_U8 && ${net}_input(net, 0, ${NET}_U8, &samples.factor, &samples.shift, 1, 1))
    return 1;
  return ${net}_data(net, fill, NULL, samples.train, samples.held);
}
