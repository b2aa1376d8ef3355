/* Samples by length, the shortest first: how many to evaluate on (0), and to train on (1). */
static const uint32_t sizes[${NET}_LENGTHS][${columns}] = ${NET}_SIZES;
static int64_t counts[2][${NET}_LENGTHS];

/* The length of a sample of a split; first: the number of the first sample that has it. */
static int length_of(int split, int64_t sample, int64_t *first) {
  int at = 0;
  *first = 0;
  while (sample - *first >= counts[split][at]) *first += counts[split][at++];
  return at;
}

