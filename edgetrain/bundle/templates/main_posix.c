/* Trains ${net} from a file of samples and keeps its state in another file.
     ./${net} SAMPLES STEPS [STATE]
     ./${net} check [STEPS]     the digest of MANIFEST.json */
#define _DEFAULT_SOURCE /* madvise */
#include "${net}.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
${thread_part}
${sample_part}
${made_up_part}
/* Two slots one behind the other in a file; the header is written when the rest is on the disk. */
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

/* Initial values go to the memory part by part, and their pages back: they are not held twice. */
static void take(void *to, const void *from, uint32_t bytes) {
  uintptr_t first = (uintptr_t)from & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
  memcpy(to, from, bytes);
  madvise((void *)first, (uintptr_t)from + bytes - first, MADV_DONTNEED);
}

static int fail(const char *what) {
  fprintf(stderr, "${net}: %s\n", what);
  return 1;
}

static int check(${net} *net, long steps) {
  ${net}_settings(net, ${NET}_LR, ${NET}_CONSTANT, steps, 0, 0, 0);
  ${net}_data(net, made_up, NULL, 4 * ${NET}_MINIBATCH, 0);
  while (steps-- > 0)
    if (${net}_step(net) != ${NET}_DONE) return fail("a step was refused");
  printf("%08" PRIx32 "\n", ${net}_digest(net));
  return 0;
}

int main(int argc, char **argv) {
  static union { double align; unsigned char bytes[${NET}_MEMORY]; } memory;
  ${net} *net = ${net}_init_by(&memory, sizeof memory, take);
  if (net == NULL || argc < 2) return fail("expected SAMPLES STEPS [STATE], or check [STEPS]");
${thread_start}  if (strcmp(argv[1], "check") == 0) return check(net, argc > 2 ? atol(argv[2]) : 5);
  if (argc < 3 || open_samples(net, argv[1])) return fail("no such file of samples");
  int fd = argc > 3 ? open(argv[3], O_RDWR | O_CREAT, 0666) : -1;
  const ${net}_store store = {&fd, erase, write_state, read_state};
  ${net}_report report;
  if (fd >= 0 && ${net}_load(net, &store) == ${NET}_FAILED) return fail("the state cannot be read");
  ${net}_progress(net, &report);
  long steps = atol(argv[2]), each = steps / 10 + 1;
  if (report.step == 0) ${net}_settings(net, ${NET}_LR, ${NET}_CONSTANT, steps, 0, 0, 0);
  while (report.step < steps) {
    if (${net}_step(net) != ${NET}_DONE) return fail("a minibatch was discarded");
    ${net}_progress(net, &report);
    if (report.step % each == 0 || report.step == steps)
      printf("step %" PRId64 " loss %.6f\n", report.step, report.loss);
  }
  if (fd >= 0 && ${net}_save(net, &store) != ${NET}_DONE) return fail("the state was not kept");
  double loss, accuracy;
  if (samples.held > 0 && ${net}_eval(net, &loss, &accuracy) == ${NET}_DONE)
    printf("eval loss %.6f accuracy %.4f\n", loss, accuracy);
  printf("digest %08" PRIx32 "\n", ${net}_digest(net));
  return 0;
}
