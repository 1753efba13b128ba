package dev.loupe.ops.cuda;

import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.kernels.AttentionKernels;
import dev.loupe.ops.Ops;
import dev.loupe.ops.SessionRoom;
import dev.loupe.ops.SessionSize;
import dev.loupe.ops.TensorArena;
import dev.loupe.weights.config.Gpt2Config;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Whether a model or a session fits into the card's memory, and where a session's memory comes
 * from.
 */
final class CudaRoom implements AutoCloseable {
  private final CudaOps ops;
  private final Gpu gpu;
  private final boolean cublas;
  private final SessionPool pool;

  /**
   * @param cublas whether cuBLAS may serve, which takes memory of its own
   */
  CudaRoom(CudaOps ops, boolean cublas) {
    this.ops = ops;
    this.gpu = ops.gpu();
    this.cublas = cublas;
    pool = new SessionPool(gpu.totalBytes());
    gpu.whenShort(pool::freeOne);
  }

  /** As {@link CudaOps#plan} has it; what is thrown says what would fit. */
  int plan(Gpt2Config config, boolean ownHead, List<SessionSize> sessions) {
    String narrower =
        Stream.of(Element.F16, Element.I8)
            .filter(e -> e.bytes() < ops.weights().bytes())
            .map(
                e ->
                    "%s weights (%s), "
                        .formatted(
                            e == Element.I8 ? "int8" : "f16",
                            Gpu.size(CudaMemory.ofModel(config, ownHead, e).bytes())))
            .collect(Collectors.joining());
    String advice = "try %sa smaller model or the CPU".formatted(narrower);
    CudaMemory model = CudaMemory.ofModel(config, ownHead, ops.weights());
    model.requireRoom(gpu, pool::freeOne, "the model", advice);
    for (SessionSize session : sessions) {
      if (model.and(memory(session)).fits(gpu, pool::freeOne)) {
        return session.samples();
      }
    }
    if (sessions.isEmpty()) {
      return 0;
    }
    SessionSize last = sessions.getLast();
    String both = "the model beside the cache of a text of %d tokens".formatted(last.positions());
    model.and(memory(last)).requireRoom(gpu, pool::freeOne, both, advice);
    return last.samples();
  }

  /** Likewise a session. */
  void requireRoom(SessionSize size) {
    String advice =
        "use %s%s%sa shorter text or fewer tokens"
            .formatted(
                ops.weights() == Element.F32 ? "f16 weights, " : "",
                size.samples() > 1 ? "fewer samples, " : "",
                size.attention().isPresent() ? "fewer layers or heads, " : "");
    memory(size).requireRoom(gpu, pool::freeOne, "the run", advice);
  }

  /** What a session of such a size takes. */
  private CudaMemory memory(SessionSize size) {
    long scores =
        AttentionKernels.scratchBytes(
            gpu, CudaMemory.cacheShape(size), ops.activations(), size.rows(), size.positions());
    return CudaMemory.ofSession(size, ops.activations(), cublas, scores);
  }

  /**
   * Memory for a session: that of one like it which ended, or new; see {@link Ops#session}.
   *
   * @throws dev.loupe.cuda.driver.GpuMemoryException if there is no room
   */
  SessionRoom session(TensorArena model, SessionSize least, SessionSize ample) {
    for (SessionSize size : List.of(ample, least)) {
      SessionPool.Key key = new SessionPool.Key((CudaArena) model, size);
      CudaArena kept = pool.take(key);
      if (kept != null) {
        return new SessionRoom(kept, size);
      }
    }
    boolean fits = memory(ample).fits(gpu, pool::freeOne);
    SessionSize size = fits ? ample : least;
    if (!fits) {
      requireRoom(least);
    }
    return new SessionRoom(new CudaArena(ops, new SessionPool.Key((CudaArena) model, size)), size);
  }

  /** Keeps the memory of a session that ended for the next one like it. */
  void keep(SessionPool.Key key, CudaArena arena) {
    pool.give(key, arena, memory(key.size()).bytes());
  }

  /** Gives back what sessions have left that read the weights in {@code model}. */
  void forget(CudaArena model) {
    pool.forget(model);
  }

  @Override
  public void close() {
    pool.close();
  }
}
