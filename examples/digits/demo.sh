#!/bin/sh
# The demo: train a small convolutional net with batch-norm on the digits inside 256 KiB.
set -eu
cd "$(dirname "$0")"
rm -rf run trained.onnx

run() { echo "\$ $*"; "$@"; echo; }

run edgetrain plan model.onnx --budget 256KiB --minibatch 32 --momentum 0.9 --nesterov
run edgetrain train model.onnx --data digits --epochs 15 --budget 256KiB --minibatch 32 \
    --lr 0.1 --momentum 0.9 --nesterov --weight-decay 5e-4 --lr-schedule cosine --out run
run edgetrain eval run --data digits
run edgetrain export run -o trained.onnx
run python check.py run trained.onnx
