package dev.loupe.cuda.ptx;

import dev.loupe.cuda.ptx.text.PtxException;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** A block of threads: its warps, its shared memory, its barriers. */
final class Block {
  /** Address of the dynamic shared memory in the shared window. */
  static final long DYNAMIC_SHARED = 0x10_0000;

  private static final int BARRIERS = 16;

  private final Machine machine;
  private final GlobalMemory.Range shared;
  private final GlobalMemory.Range parameters;
  private final List<Warp> warps = new ArrayList<>();
  private final List<List<Arrival>> barriers = new ArrayList<>();

  /** Lanes of a warp that wait at a barrier. */
  private record Arrival(Warp warp, int lanes, int pc, Step.Action.Barrier barrier, int threads) {}

  Block(
      Machine machine,
      Module.Entry entry,
      Machine.Launch launch,
      Machine.Size index,
      GlobalMemory.Range parameters,
      long workspace) {
    this.machine = machine;
    this.parameters = parameters;
    byte[] bytes = new byte[launch.sharedBytes()];
    Arrays.fill(bytes, (byte) 0xff); // NaN in every element: nothing is there yet
    shared = new GlobalMemory.Range(DYNAMIC_SHARED, MemorySegment.ofArray(bytes));
    int threads = launch.block().count();
    for (int first = 0; first < threads; first += Warp.LANES) {
      Warp warp = new Warp(this, entry, Math.min(Warp.LANES, threads - first));
      place(warp, entry.registers().specials(), launch, index, first, workspace);
      warps.add(warp);
    }
    for (int i = 0; i < BARRIERS; i++) {
      barriers.add(new ArrayList<>());
    }
  }

  private static void place(
      Warp warp,
      Map<Registers.Special, Integer> specials,
      Machine.Launch launch,
      Machine.Size index,
      int first,
      long workspace) {
    Machine.Size block = launch.block();
    Machine.Size grid = launch.grid();
    specials.forEach(
        (special, register) -> {
          for (int lane = 0; lane < Warp.LANES; lane++) {
            int t = first + lane;
            warp.registers[register][lane] =
                switch (special) {
                  case TID_X -> t % block.x();
                  case TID_Y -> t / block.x() % block.y();
                  case TID_Z -> t / block.x() / block.y();
                  case NTID_X -> block.x();
                  case NTID_Y -> block.y();
                  case NTID_Z -> block.z();
                  case CTAID_X -> index.x();
                  case CTAID_Y -> index.y();
                  case CTAID_Z -> index.z();
                  case NCTAID_X -> grid.x();
                  case NCTAID_Y -> grid.y();
                  case NCTAID_Z -> grid.z();
                  case LANEID -> lane;
                  case ENVREG1 -> workspace >>> 32; // as cooperative_groups puts it together
                  case ENVREG2 -> workspace & 0xffff_ffffL;
                };
          }
        });
  }

  GlobalMemory memory() {
    return machine.memory();
  }

  GlobalMemory.Range parameters() {
    return parameters;
  }

  /** The shared memory, which has these bytes. */
  GlobalMemory.Range shared(long address, long size) {
    if (!shared.has(address, size)) {
      throw new PtxException(
          "%d bytes at shared address %x: the block has %d from %x on"
              .formatted(size, address, shared.bytes().byteSize(), DYNAMIC_SHARED));
    }
    return shared;
  }

  boolean isDone() {
    return warps.stream().allMatch(Warp::isDone);
  }

  /** Every warp runs a while; returns how many instructions. */
  int turn() {
    int instructions = 0;
    for (Warp warp : warps) {
      instructions += warp.run(Machine.TURN);
    }
    return instructions;
  }

  /** What all wait for, for people. */
  String waiting() {
    return warps.stream().map(Warp::waiting).collect(Collectors.joining("; "));
  }

  /** Lanes arrive at a barrier; they wait there even if they are the last. */
  void arrive(Warp warp, int lanes, int pc, Step.Action.Barrier barrier) {
    int lane = Integer.numberOfTrailingZeros(lanes);
    int id = (int) warp.registers[barrier.id()][lane];
    int threads = barrier.threads() == -1 ? -1 : (int) warp.registers[barrier.threads()][lane];
    if (id < 0 || id >= BARRIERS || threads == 0 || (threads > 0 && threads % Warp.LANES != 0)) {
      throw new PtxException("barrier %d of %d threads".formatted(id, threads));
    }
    List<Arrival> arrived = barriers.get(id);
    for (Arrival other : arrived) {
      if (other.threads() != threads || (other.warp() == warp && other.pc() != pc)) {
        throw new PtxException(
            "barrier %d: not all come to the same one of %d threads".formatted(id, threads));
      }
    }
    arrived.add(new Arrival(warp, lanes, pc, barrier, threads));
    release(arrived);
  }

  /** Lanes have ended, which others may have waited for. */
  void ended() {
    barriers.forEach(this::release);
  }

  private void release(List<Arrival> arrived) {
    if (arrived.isEmpty()) {
      return;
    }
    int complete = 0; // warps that are there with all lanes that have not ended
    for (Warp warp : warps) {
      int there =
          arrived.stream()
              .filter(a -> a.warp() == warp)
              .mapToInt(Arrival::lanes)
              .reduce(0, (a, b) -> a | b);
      complete +=
          there == warp.alive() && (there != 0 || arrived.getFirst().threads() == -1) ? 1 : 0;
    }
    int threads = arrived.getFirst().threads();
    int wanted = threads == -1 ? warps.size() : threads / Warp.LANES;
    if (complete < wanted) {
      return;
    }
    List<Arrival> all = List.copyOf(arrived);
    arrived.clear();
    reduce(all);
    all.forEach(a -> a.warp().goOn(a.lanes()));
  }

  private static void reduce(List<Arrival> all) {
    int members = 0;
    int yes = 0;
    for (Arrival a : all) {
      Step.Action.Reduction reduction = a.barrier().reduction();
      for (int lane = 0; reduction != null && lane < Warp.LANES; lane++) {
        if ((a.lanes() >>> lane & 1) != 0) {
          boolean predicate = a.warp().registers[reduction.predicate()][lane] != 0;
          members++;
          yes += predicate != reduction.negated() ? 1 : 0;
        }
      }
    }
    for (Arrival a : all) {
      Step.Action.Reduction reduction = a.barrier().reduction();
      if (reduction != null) {
        long result =
            switch (reduction.operation()) {
              case "popc" -> yes;
              case "and" -> yes == members ? 1 : 0;
              default -> yes > 0 ? 1 : 0;
            };
        a.warp().fill(reduction.result(), a.lanes(), result);
      }
    }
  }
}
