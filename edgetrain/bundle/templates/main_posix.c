/* Trains ${net} on a file of samples and saves its state in another file.
     ./${net} SAMPLES STEPS [STATE]
     ./${net} check [STEPS]     print the digest in MANIFEST.json */
#define _POSIX_C_SOURCE 200809L
#include "${net}.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
${thread_part}
${lengths_part}${sample_part}
${made_up_part}
/* Two consecutive slots in a file; a header is written once the rest of its slot is on disk. */
static int erase(void *user, int slot) {
  static const unsigned char gone[64];
  int fd = *(int *)user;
  return pwrite(fd, gone, 64, (off_t)slot * ${NET}_STORED) != 64 || fsync(fd);
}
static int write_state(void *user, int slot, uint32_t offset, const void *data, uint32_t bytes) {
  int fd = *(int *)user;
  if (offset == 0 && fsync(fd)) return 1;
  if (pwrite(fd, data, bytes, (off_t)slot * ${NET}_STORED + offset) != (ssize_t)bytes) return 1;
  return offset == 0 && fsync(fd);
}
static int read_state(void *user, int slot, uint32_t offset, void *data, uint32_t bytes) {
  return pread(*(int *)user, data, bytes, (off_t)slot * ${NET}_STORED + offset) != (ssize_t)bytes;
}

/* The initial weights are at the end of this executable (see the Makefile), or in ${net}.weights.
   They are read straight into the net, so memory holds them only once. */
static struct { int fd; off_t start; } weights;
static int read_weights(void *user, void *to, uint32_t offset, uint32_t bytes) {
  (void)user;
  return pread(weights.fd, to, bytes, weights.start + offset) != (ssize_t)bytes;
}
static int find_weights(const char *file) {
  uint32_t end[2] = {0, 0};
  weights.fd = open(file, O_RDONLY);
  off_t size = weights.fd < 0 ? -1 : lseek(weights.fd, 0, SEEK_END);
  weights.start = size - (off_t)sizeof end - ${initial};
  if (weights.start >= 0 && pread(weights.fd, end, sizeof end, size - (off_t)sizeof end) == sizeof end)
    if (end[0] == ${weights_magic} && end[1] == ${initial}) return 0;
  if (weights.fd >= 0) close(weights.fd);
  return 1;
}

static int fail(const char *what) {
  fprintf(stderr, "${net}: %s\n", what);
  return 1;
}

static int check(${net} *net, long steps) {
  ${net}_settings(net, ${NET}_LR, ${NET}_CONSTANT, steps, 0, 0, 0);
  ${made_up_data};
  while (steps-- > 0)
    if (${net}_step(net) != ${NET}_DONE) return fail("a step was refused");
  printf("%08" PRIx32 "\n", ${net}_digest(net));
  return 0;
}
${return_part}
int main(int argc, char **argv) {
  static union { double align; unsigned char bytes[${NET}_MEMORY]; } memory;
  if (find_weights("/proc/self/exe") && find_weights("${net}.weights"))
    return fail("${net}.weights not found; make appends it to the executable");
  ${net} *net = ${net}_open(&memory, sizeof memory, read_weights, NULL);
  close(weights.fd);
  if (net == NULL || argc < 2) return fail("expected SAMPLES STEPS [STATE], or check [STEPS]");
${thread_start}  if (strcmp(argv[1], "check") == 0) return check(net, argc > 2 ? atol(argv[2]) : 5);
  if (argc < 3 || open_samples(net, argv[1])) return fail("cannot read the file of samples");
  int fd = argc > 3 ? open(argv[3], O_RDWR | O_CREAT, 0666) : -1;
  const ${net}_store store = {&fd, erase, write_state, read_state};
  ${net}_report report;
  if (fd >= 0 && ${net}_load(net, &store) == ${NET}_FAILED) return fail("the state cannot be read");
  ${net}_progress(net, &report);
  long steps = atol(argv[2]), each = steps / 10 + 1;
  if (report.step == 0) ${net}_settings(net, ${NET}_LR, ${NET}_CONSTANT, steps, 0, 0, 0);
${first_state}  while (report.step < steps) {
    int status = ${advance};
    if (status != ${NET}_DONE) return fail("a minibatch was discarded");
    ${net}_progress(net, &report);${kept_state}
    if (report.step % each == 0 || report.step == steps)
      printf("step %" PRId64 " loss %.6f\n", report.step, report.loss);
  }
  if (fd >= 0 && ${net}_save(net, &store) != ${NET}_DONE) return fail("the state was not saved");
  double loss, accuracy;
  if (${held}${net}_eval(net, &loss, &accuracy) == ${NET}_DONE)
    ${judged}
  printf("digest %08" PRIx32 "\n", ${net}_digest(net));
  return 0;
}
