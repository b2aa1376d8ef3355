# Trains the digits on an emulated Cortex-M7: sh examples/cortex_m7/run.sh [FOLDER] [STEPS]
set -e
here=$(dirname "$0")
out=${1:-board}
steps=${2:-220}
mkdir -p "$out"
edgetrain compile "$here/../digits/model.onnx" --target cortex-m7 --precision fp16 --minibatch 32 \
  --momentum 0.9 --nesterov --weight-decay 5e-4 --lr 0.03 --budget 51KiB -o "$out/digits.edge"
edgetrain bundle "$out/digits.edge" --name digits --size --data digits -o "$out"
cp "$here/board.c" "$out"
sed 's/FLASH_AT/0x00000000/; s/RAM_AT/0x20000000/; s/RAM_SIZE/4M/; s/STACK_SIZE/16K/' "$here/board.ld" > "$out/board.ld"
cat > "$out/board.h" <<END
#include "digits.h"
#define COUNTER 0x40028018
#define SAMPLES "digits.samples"
#define NET_SAMPLES "digits_samples"
extern const digits_store *const board_store;
#ifndef STORE
const digits_store *const board_store = NULL;
#endif
END
make -s -C "$out" CC="arm-none-eabi-gcc -DSTEPS=$steps"
arm-none-eabi-size "$out/digits"
qemu-system-arm -M mps2-an500 -nographic -monitor none -serial none -icount shift=0 \
  -semihosting-config enable=on,target=native -kernel "$out/digits"
