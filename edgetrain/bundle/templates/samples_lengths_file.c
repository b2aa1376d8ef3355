/* A file of samples. For each length, the shortest first: a header of 32 bytes, then raw values,
   training samples first. */
static struct { uint32_t magic, train, held, type; float factor, shift; uint32_t bytes, zero; } samples[${NET}_LENGTHS];
static off_t starts[${NET}_LENGTHS];
static int samples_fd;

static int fill(void *user, int split, int64_t sample, void *x, void *y) {
  unsigned char record[${record_most}], *from = record;
  int64_t first;
  int at = length_of(split, sample, &first);
  (void)user;
  sample += split == 0 ? samples[at].train - first : -first;
  off_t place = starts[at] + (off_t)sample * samples[at].bytes;
  if (pread(samples_fd, record, samples[at].bytes, place) != (ssize_t)samples[at].bytes) return 2;
${copies}  return 0;
}

static int open_samples(${net} *net, const char *name) {
  off_t place = 0;
  samples_fd = open(name, O_RDONLY);
  for (int k = 0; k < ${NET}_LENGTHS; k++) {
    if (samples_fd < 0 || pread(samples_fd, &samples[k], 32, place) != 32) return 1;
    if (samples[k].magic != 0x4D534445 || samples[k].bytes > ${record_most}) return 1;
    starts[k] = place + 32;
    place = starts[k] + (off_t)samples[k].bytes * ((off_t)samples[k].train + samples[k].held);
    counts[0][k] = samples[k].held;
    counts[1][k] = samples[k].train;
  }
  return ${net}_data(net, fill, NULL, counts[1], counts[0]);
}
