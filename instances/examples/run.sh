#!/bin/bash
# A run as it goes on: `hetopt check --from run.sh --instance my-cluster.yaml`.
TP=4
PP=4

MODEL=(
  --num-layers 32
  --hidden-size 4096
  --ffn-hidden-size 14336
  --num-attention-heads 32
  --group-query-attention
  --num-query-groups 8
  --seq-length 4096
  --swiglu
)
PARALLEL=(
  --tensor-model-parallel-size $TP
  --pipeline-model-parallel-size $PP
  --sequence-parallel
)

torchrun --nnodes 3 pretrain_gpt.py "${MODEL[@]}" "${PARALLEL[@]}" \
  --micro-batch-size 1 \
  --global-batch-size 64 \
  --bf16 \
  --recompute-granularity full \
  --recompute-method uniform \
  --recompute-num-layers 1
