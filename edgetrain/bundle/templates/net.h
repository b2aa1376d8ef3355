/* ${title}
   Written by edgetrain ${version}; link lib${net}.a. Functions use only the memory passed to
   ${net}_init: they allocate nothing and do not call libc, so a program may have several nets. Only
   one thread at a time may use a net. Functions return ${NET}_DONE or an error code from below. */
#ifndef ${NET}_H
#define ${NET}_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define ${NET}_MEMORY ${memory} /* bytes for ${net}_init, including the plan's arena of ${arena} */
${frozen}#define ${NET}_STORED ${stored} /* bytes of a saved state; a store has two slots of this size */
#define ${NET}_MINIBATCH ${minibatch} /* samples per update */
#define ${NET}_THREADS ${threads}
#define ${NET}_LR ${lr} /* learning rate at compile time */
#define ${NET}_INPUTS ${inputs}
${output}
#define ${NET}_TARGET ${target} /* ${target_type} values of a sample's target${target_layout} */
${input_sizes}${lengths}
enum { ${NET}_DONE = 0, ${NET}_MORE = -6,
       ${NET}_BAD_VALUE = -1, /* a sample's value is not finite, or an integer is out of range */
       ${NET}_BUSY = -2,      /* a minibatch is unfinished */
       ${NET}_NOTHING = -3,   /* the store has no valid state of this net */
       ${NET}_FAILED = -4,    /* the store reported an error, or lost data */
${broken}       ${NET}_REFUSED = -5 }; /* an argument is out of range */
enum { ${NET}_F32, ${NET}_F16, ${NET}_I32, ${NET}_I64, ${NET}_U8 };
${schedules}

typedef struct ${net} ${net};

/* Writes sample `sample` (0, 1, ..) of a split (1 train, 0 eval): the input's raw values to x, the
   target to y. With several inputs, x is an array of pointers. With several losses, y is the first
   target, and the other targets follow the inputs in x. Returns 0; a positive number ends the call.
   It must not call functions of this net. */
typedef int ${net}_fill(void *user, int split, int64_t sample, void *x, void *y);

/* Two slots in flash or in a file. Offsets and sizes are multiples of 64; addresses are aligned to
   8 bytes. After an erase, each place is written only once. Functions return 0 for success. */
typedef struct ${net}_store {
  void *user;
  int (*erase)(void *user, int slot);
  int (*write)(void *user, int slot, uint32_t offset, const void *data, uint32_t bytes);
  int (*read)(void *user, int slot, uint32_t offset, void *data, uint32_t bytes);
} ${net}_store;

/* A learning rate schedule; set unused fields to 0.${schedule_words} */
typedef struct ${net}_rates {
  int64_t kind, total_steps, warmup_steps; /* ${NET}_CONSTANT, ..; of the run; of the warmup */
  int64_t size;               /* STEP: steps between drops; PLATEAU: steps per window; MULTISTEP:
                                 number of drops; INVERSE_SQRT: steps, 0: warmup_steps or 10000 */
  int64_t patience, cooldown; /* PLATEAU: windows without progress before a drop; windows ignored
                                 after a drop */
  int64_t drops[8];           /* MULTISTEP: steps at which the rate drops, ascending */
  double lr, gamma;           /* gamma: factor per drop; EXPONENTIAL: per step */
  double threshold, min_lr;   /* PLATEAU: smallest relative progress; smallest rate */
  double rise, first, last;   /* ONE_CYCLE: fraction that rises; factors of lr at both ends */
} ${net}_rates;

typedef struct ${net}_report {
  int64_t step, skipped; /* minibatches done; 1: the last one changed no weight */
  double loss, grad_norm, lr, loss_scale;
} ${net}_report;
${thread_types}
/* Set up the net in `memory`, with its initial weights; NULL if `bytes` is too small. */
${net} *${net}_init(void *memory, size_t bytes);${open}
${functions}
/* Values for get and set, with their shapes. */
${values}

#ifdef __cplusplus
}
#endif
#endif
