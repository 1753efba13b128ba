package dev.loupe.ops.cuda;

import dev.loupe.ops.SessionSize;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What sessions leave to the next ones of their model and size: device memory, pinned memory,
 * events, prepared launches and recorded graphs, so that a request builds nothing. It holds the
 * {@value #MOST} that ended last, of a quarter of the card's memory at most, and gives them back
 * where somebody else needs theirs.
 *
 * <p>For several threads. It calls the GPU outside of its lock, as the GPU's thread calls it.
 */
final class SessionPool implements AutoCloseable {
  /** Most sessions that are kept. */
  static final int MOST = 4;

  /**
   * Whose sessions may follow each other.
   *
   * @param model memory of their model's weights, to which launches and graphs refer
   */
  record Key(CudaArena model, SessionSize size) {
    @Override
    public boolean equals(@Nullable Object o) {
      return o instanceof Key other && other.model == model && other.size.equals(size);
    }

    @Override
    public int hashCode() {
      return 31 * System.identityHashCode(model) + size.hashCode();
    }
  }

  private record Idle(Key key, CudaArena arena, long bytes) {}

  private final long mostBytes;
  private final List<Idle> idle = new ArrayList<>(); // the one that ended last at the end
  private boolean closed;

  /**
   * @param cardBytes memory of the card
   */
  SessionPool(long cardBytes) {
    mostBytes = cardBytes / 4;
  }

  /**
   * The memory of an earlier session, or null if there is none.
   *
   * @throws dev.loupe.cuda.driver.GpuException if the GPU fails
   */
  @Nullable CudaArena take(Key key) {
    CudaArena found = null;
    synchronized (this) {
      for (int i = idle.size() - 1; i >= 0 && found == null; i--) {
        if (idle.get(i).key().equals(key)) {
          found = idle.remove(i).arena();
        }
      }
    }
    if (found != null) {
      found.wake();
    }
    return found;
  }

  /** Keeps the memory of a session that ended, or frees it where it has become too much. */
  void give(Key key, CudaArena arena, long bytes) {
    List<CudaArena> tooMany = new ArrayList<>();
    synchronized (this) {
      if (closed || key.model().isClosed() || bytes > mostBytes) {
        tooMany.add(arena);
      } else {
        idle.add(new Idle(key, arena, bytes));
        while (idle.size() > MOST || idle.stream().mapToLong(Idle::bytes).sum() > mostBytes) {
          tooMany.add(idle.removeFirst().arena());
        }
      }
    }
    tooMany.forEach(CudaArena::free);
  }

  /** Frees the memory of the session that ended first; false if none is left. */
  boolean freeOne() {
    CudaArena first;
    synchronized (this) {
      if (idle.isEmpty()) {
        return false;
      }
      first = idle.removeFirst().arena();
    }
    first.free();
    return true;
  }

  /** Frees what sessions of a model left, whose weights are no longer. */
  void forget(CudaArena model) {
    List<CudaArena> of = new ArrayList<>();
    synchronized (this) {
      for (Idle each : List.copyOf(idle)) {
        if (each.key().model() == model) {
          idle.remove(each);
          of.add(each.arena());
        }
      }
    }
    of.forEach(CudaArena::free);
  }

  @Override
  public void close() {
    synchronized (this) {
      closed = true;
    }
    while (freeOne()) {
      // each in turn
    }
  }
}
