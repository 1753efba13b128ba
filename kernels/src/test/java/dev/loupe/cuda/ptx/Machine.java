package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.text.PtxException;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;

/**
 * Runs kernels. Blocks of a cooperative launch take turns; others run one after the other. Warps of
 * a block take turns too, a few thousand instructions each, so that what spins on memory ends.
 */
public final class Machine {
  /**
   * How a kernel is launched.
   *
   * @param sharedBytes dynamic shared memory of a block
   * @param cooperative true if blocks wait for each other
   */
  public record Launch(Size grid, Size block, int sharedBytes, boolean cooperative) {
    /** One that isn't cooperative, along x. */
    public Launch(int blocks, int threads, int sharedBytes) {
      this(new Size(blocks, 1, 1), new Size(threads, 1, 1), sharedBytes, false);
    }
  }

  /** Threads of a block or blocks of a grid. */
  public record Size(int x, int y, int z) {
    int count() {
      return Math.multiplyExact(Math.multiplyExact(x, y), z);
    }
  }

  /** What one warp runs before it is another's turn. */
  static final int TURN = 4096;

  private static final long MOST_INSTRUCTIONS = 2_000_000_000L; // of a launch
  private static final int WORKSPACE = 16; // of a cooperative grid's barrier

  private final GlobalMemory memory;
  private final long limit;
  private long instructions;

  public Machine(GlobalMemory memory) {
    this(memory, MOST_INSTRUCTIONS);
  }

  /**
   * @param limit instructions of a launch; what runs longer hangs
   */
  Machine(GlobalMemory memory, long limit) {
    this.memory = memory;
    this.limit = limit;
  }

  GlobalMemory memory() {
    return memory;
  }

  /** Instructions of warps since the machine was made. */
  public long instructions() {
    return instructions;
  }

  /**
   * Runs a kernel to its end.
   *
   * @param parameters one value for each parameter, in its low bits
   * @throws PtxException if it does what the ISA leaves undefined, or hangs
   */
  public void run(Module.Entry entry, Launch launch, long... parameters) {
    if (parameters.length != entry.parameters().size()) {
      throw new PtxException(
          "%s has %d parameters, not %d"
              .formatted(entry.name(), entry.parameters().size(), parameters.length));
    }
    if (launch.block().count() > entry.maxThreads()) {
      throw new PtxException(
          "%s takes blocks of %d threads at most".formatted(entry.name(), entry.maxThreads()));
    }
    byte[] block = new byte[entry.parameterBytes()];
    GlobalMemory.Range range = new GlobalMemory.Range(0, MemorySegment.ofArray(block));
    for (int i = 0; i < parameters.length; i++) {
      Module.Parameter parameter = entry.parameters().get(i);
      Memory.store(range, parameter.offset(), parameter.bytes(), parameters[i]);
    }
    long workspace = launch.cooperative() ? memory.allocate(WORKSPACE) : 0;
    Size grid = launch.grid();
    List<Block> blocks = new ArrayList<>();
    long began = instructions;
    for (int i = 0; i < grid.count(); i++) {
      Size index = new Size(i % grid.x(), i / grid.x() % grid.y(), i / grid.x() / grid.y());
      blocks.add(new Block(this, entry, launch, index, range, workspace));
      if (!launch.cooperative()) {
        finish(blocks, began);
        blocks.clear();
      }
    }
    finish(blocks, began);
  }

  private void finish(List<Block> blocks, long began) {
    List<Block> running = new ArrayList<>(blocks);
    while (!running.isEmpty()) {
      long before = instructions;
      IntStream.range(0, running.size()).forEach(i -> instructions += running.get(i).turn());
      running.removeIf(Block::isDone);
      if (!running.isEmpty() && instructions == before) {
        throw new PtxException("deadlock: " + running.getFirst().waiting());
      }
      if (instructions - began > limit) {
        throw new PtxException("the kernel does not end");
      }
    }
  }
}
