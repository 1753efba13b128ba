// Prefill attention over the KV cache, one idea a version. The problem is in attention_common.cuh.
#include "attention_v1.cuh"
#include "attention_v2.cuh"
#include "attention_v3.cuh"
#include "attention_v4.cuh"
#include "attention_v5.cuh"
#include "attention_v6.cuh"
