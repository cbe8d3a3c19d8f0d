#!/bin/bash
# A run on Slurm without Ray: torchrun, one launcher a machine. Pre-empted jobs are queued again and go on.
#SBATCH --job-name=cruciform
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@60

set -euo pipefail
export CRUCIFORM_DATA=/shared/data
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# exec: SIGTERM reaches torchrun, which hands it on; the run saves its state and ends with 143.
exec srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 8 --max-restarts 3 \
  --rdzv-backend c10d --rdzv-endpoint "$head:29500" --rdzv-id "$SLURM_JOB_ID" \
  -m cruciform train vgg11_gmp_lr_ilsvrc --backend ddp --workers 16 --device cuda --run /shared/runs/vgg --resume
