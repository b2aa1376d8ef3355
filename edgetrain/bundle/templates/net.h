/* ${title}
   Written by edgetrain ${version}; link lib${net}.a. No function allocates, calls libc or keeps
   anything but in the memory it is given; several nets may be in one program. One net is for one
   thread at a time. Functions return ${NET}_DONE or another of the numbers below. */
#ifndef ${NET}_H
#define ${NET}_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define ${NET}_MEMORY ${memory} /* bytes for ${net}_init, of which ${arena} are the plan's arena */
${frozen}#define ${NET}_STORED ${stored} /* bytes of a saved state: each of the two slots of a store */
#define ${NET}_MINIBATCH ${minibatch} /* samples of one update */
#define ${NET}_THREADS ${threads}
#define ${NET}_LR ${lr} /* learning rate that the net was compiled with */
#define ${NET}_INPUTS ${inputs}
${output}
#define ${NET}_TARGET ${target} /* ${target_type} values of a sample's target${target_layout} */
${input_sizes}${lengths}
enum { ${NET}_DONE = 0, ${NET}_MORE = -6,
       ${NET}_BAD_VALUE = -1, /* a sample's value is not finite or not below its limit */
       ${NET}_BUSY = -2,      /* a minibatch is half done */
       ${NET}_NOTHING = -3,   /* no good state of this net is stored */
       ${NET}_FAILED = -4,    /* the store said so, or did not keep what was written */
${broken}       ${NET}_REFUSED = -5 }; /* an argument */
enum { ${NET}_F32, ${NET}_F16, ${NET}_I32, ${NET}_I64, ${NET}_U8 };
${schedules}

typedef struct ${net} ${net};

/* Writes sample `sample` (0, 1, ..) of a split, 1 train or 0 eval: raw values of the input at x (of
   several inputs: x is an array of pointers), the target at y (of several losses: the first one's;
   the others' are in x, behind the inputs). 0, or a number above 0 that ends the call. */
typedef int ${net}_fill(void *user, int split, int64_t sample, void *x, void *y);

/* Two slots of flash or of a file. Offsets, addresses and bytes are multiples of 64, but addresses
   are aligned to 8 only; each place is written once after an erasure. 0: it worked. */
typedef struct ${net}_store {
  void *user;
  int (*erase)(void *user, int slot);
  int (*write)(void *user, int slot, uint32_t offset, const void *data, uint32_t bytes);
  int (*read)(void *user, int slot, uint32_t offset, void *data, uint32_t bytes);
} ${net}_store;

/* A schedule of the learning rate; what one has no use for is 0.${schedule_words} */
typedef struct ${net}_rates {
  int64_t kind, total_steps, warmup_steps; /* ${NET}_CONSTANT, ..; of the run; of a linear rise */
  int64_t size;               /* STEP: steps between drops; PLATEAU: steps of a window; MULTISTEP:
                                 how many drops; INVERSE_SQRT: steps, 0: the rise's, or 10000 */
  int64_t patience, cooldown; /* PLATEAU: windows of training losses without progress before a
                                 drop; after one that do not count */
  int64_t drops[8];           /* MULTISTEP: at which steps, rising */
  double lr, gamma;           /* gamma: factor of a drop; EXPONENTIAL: of a step */
  double threshold, min_lr;   /* PLATEAU: share of the best loss that is progress; least rate */
  double rise, first, last;   /* ONE_CYCLE: share of the run; factors of lr at its ends */
} ${net}_rates;

typedef struct ${net}_report {
  int64_t step, skipped; /* minibatches done; 1: the last one moved nothing */
  double loss, grad_norm, lr, loss_scale;
} ${net}_report;
${thread_types}
/* The net in `memory`, with its initial values; NULL where that is short. */
${net} *${net}_init(void *memory, size_t bytes);${open}
${functions}
/* Values for get and set, with their elements. */
${values}

#ifdef __cplusplus
}
#endif
#endif
