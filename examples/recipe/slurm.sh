#!/usr/bin/env bash
#SBATCH --job-name=muse
#SBATCH --ntasks-per-node=1
#SBATCH --time=24:00:00
# Trains a recipe on several nodes; submit it again to continue. An example, to be adapted to your cluster:
#
#   sbatch --nodes 2 --gpus-per-node 4 examples/recipe/slurm.sh examples/wmt14_en_de/train.sh
set -euo pipefail

script=${1:?name a train.sh, e.g. examples/wmt14_en_de/train.sh}
NUM_NODES=${SLURM_JOB_NUM_NODES:?this is for sbatch}
NUM_GPUS=${SLURM_GPUS_ON_NODE:?ask for GPUs: --gpus-per-node}
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export NUM_NODES NUM_GPUS
export RDZV_ENDPOINT="$first:$((20000 + SLURM_JOB_ID % 10000))" RDZV_ID=$SLURM_JOB_ID
srun --kill-on-bad-exit bash "$script" "${@:2}"
