/* Number of samples by length, the shortest first: for evaluation (0) and training (1). */
static const uint32_t sizes[${NET}_LENGTHS][${columns}] = ${NET}_SIZES;
static int64_t counts[2][${NET}_LENGTHS];

/* Index of a sample's length; first: number of the first sample with this length. */
static int length_of(int split, int64_t sample, int64_t *first) {
  int at = 0;
  *first = 0;
  while (sample - *first >= counts[split][at]) *first += counts[split][at++];
  return at;
}

