// Preload for tests of the engine on NCCL: devices export timeline semaphores, for the CUDA of `nccl.c`.
import { install } from './layer.mjs';

install().offerTimelines();
