package dev.loupe.ops.cuda;

import dev.loupe.cuda.CudaEvent;
import dev.loupe.cuda.CudaStream;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.HostBuffer;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.kernels.AttentionMapKernels;
import dev.loupe.cuda.kernels.AttentionMapKernels.Cells;
import dev.loupe.cuda.kernels.AttentionMapKernels.Layout;
import dev.loupe.cuda.kernels.AttentionMapKernels.Selection;
import dev.loupe.cuda.kernels.AttentionMapKernels.Source;
import dev.loupe.cuda.kernels.AttentionMapKernels.Statistics;
import dev.loupe.ops.Attention;
import dev.loupe.ops.AttentionPlan;
import dev.loupe.ops.AttentionPlan.Kind;
import dev.loupe.ops.RebuiltRows;
import dev.loupe.weights.tensor.DType;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The attention of one session on its way to the host, beside the passes that it comes from. What
 * rebuilds it runs on a stream of its own; a second one copies it to pinned memory. The pass waits
 * for the first ({@link #hold}) before a layer overwrites the queries that are still being read,
 * and before a step moves on the positions.
 */
final class CudaMaps {
  /** What a kernel has left at some place on the device, and where it comes to on the host. */
  private static final class Mirror {
    final HostBuffer host;
    final CudaEvent copied;
    boolean underWay;
    long uses; // how often rows were rebuilt here

    Mirror(HostBuffer host, CudaEvent copied) {
      this.host = host;
      this.copied = copied;
    }
  }

  /**
   * How rows lie in memory: one after the other, but of statistics all entropies first, then all
   * distances, all top keys (I32) and all their weights, each part at a multiple of 16 bytes.
   *
   * @param columns elements of a row
   */
  record RowLayout(Kind kind, DType dtype, int count, int columns) {
    int top() {
      return (columns - 2) / 2;
    }

    /**
     * Where a part of statistics begins: 0 entropies, 1 distances, 2 keys, 3 weights, 4 the end.
     */
    long part(int i) {
      long ofOne = aligned(count);
      return Math.min(i, 2) * ofOne + Math.max(0, i - 2) * aligned((long) count * top());
    }

    private static long aligned(long elements) {
      return Math.ceilDiv(elements, 4L) * 4;
    }

    long bytes() {
      return (kind == Kind.STATISTICS ? part(4) : (long) count * columns) * dtype.bytes();
    }

    /**
     * The first {@code n} elements of a row, as {@link AttentionPlan} has it, from {@code at} on.
     */
    void read(MemorySegment from, long at, int row, float[] into, int n) {
      if (kind != Kind.STATISTICS) {
        dtype.decode(from, at + (long) row * columns * dtype.bytes(), into, 0, n);
        return;
      }
      for (int i = 0; i < n; i++) {
        int part = i < 2 ? i : 2 + (i - 2) / top();
        long cell = part(part) + (i < 2 ? row : (long) row * top() + (i - 2) % top());
        int bits = from.get(ValueLayout.JAVA_INT, at + cell * Integer.BYTES);
        into[i] = part == 2 ? bits : Float.intBitsToFloat(bits);
      }
    }
  }

  private final CudaOps ops;
  private final CudaArena arena;
  private final CudaStream rebuilding;
  private final CudaStream copying;
  private final CudaEvent attended; // queries and log-sum-exp are there
  private final CudaEvent rebuilt;
  private final CudaEvent copied;
  private boolean reading; // they must not be overwritten before `rebuilt`
  private final Map<CudaSession.Cells, AttentionMapKernels> kernels = new HashMap<>();
  private final Map<Long, Mirror> mirrors = new HashMap<>();
  private int[] heads = {};
  private @Nullable DeviceBuffer headList;

  CudaMaps(CudaOps ops, CudaArena arena) {
    this.ops = ops;
    this.arena = arena;
    rebuilding = arena.own(ops.gpu().sideStream());
    copying = arena.own(ops.gpu().sideStream());
    attended = arena.own(ops.gpu().mark());
    rebuilt = arena.own(ops.gpu().mark());
    copied = arena.own(ops.gpu().mark());
  }

  /** Lets what comes next on the GPU's stream overwrite what the last attention has left. */
  void hold() {
    if (reading) {
      rebuilt.hold();
      reading = false;
    }
  }

  /** Lets what comes next on the GPU's stream wait for all that is on these. */
  void join() {
    hold();
    copying.run(copied::set);
    copied.hold();
  }

  /** Puts on the copying stream, behind what was put on the GPU's before {@code mark}. */
  void copyBehind(CudaEvent mark, Runnable copies) {
    copying.run(
        () -> {
          mark.hold();
          copies.run();
        });
  }

  /**
   * Allocates what rebuilding takes.
   *
   * @param most heads that a model has
   */
  void prepare(int[] wanted, int most) {
    DeviceBuffer _ = list(wanted, most);
  }

  /**
   * Rebuilds rows of the attention that just ran.
   *
   * @param rows [heads count, columns]
   * @param out where, from its start
   */
  void rebuild(
      Attention in,
      CudaSession.Rows of,
      int[] wanted,
      int first,
      int count,
      RowLayout rows,
      DeviceBuffer out) {
    DeviceBuffer qkv = ops.buffer(in.qkv());
    Source source =
        new Source(
            qkv,
            ops.buffer(in.kv().keys(in.layer())),
            ops.buffer(in.lse()),
            of.segments().buffer(),
            of.segments().count(),
            in.isCausal(),
            in.scale());
    Selection selection = new Selection(list(wanted, in.kv().heads()), wanted.length, first, count);
    AttentionMapKernels rebuild =
        kernels.computeIfAbsent(
            new CudaSession.Cells(CudaSession.shape(in.kv()), qkv.element()),
            c -> new AttentionMapKernels(ops.gpu(), c.shape(), c.element(), ops.activations()));
    attended.set();
    rebuilding.run(
        () -> {
          attended.hold();
          if (rows.kind() == Kind.STATISTICS) {
            rebuild.statistics(
                rebuild.statisticsVariant(count, of.segments().count()),
                source,
                selection,
                planes(rows, out));
          } else {
            rebuild.map(
                rebuild.mapVariant(count, of.segments().count()),
                source,
                selection,
                rows.kind() == Kind.SCORES ? Cells.SCORES : Cells.PROBABILITIES,
                new Layout.Dense(rows.columns()),
                out.as(rows.dtype() == DType.F16 ? Element.F16 : Element.F32));
          }
          rebuilt.set();
        });
    reading = true;
  }

  /**
   * The wanted heads on the device.
   *
   * @param most how many a model has
   */
  private DeviceBuffer list(int[] wanted, int most) {
    DeviceBuffer list = headList;
    if (list == null || list.elements() < wanted.length) {
      list = arena.buffer(Element.I32, Math.max(wanted.length, most));
      headList = list;
      heads = new int[0];
    }
    if (!Arrays.equals(heads, wanted)) {
      list.upload(wanted); // waits for what reads the last ones
      heads = wanted.clone();
    }
    return list;
  }

  private static Statistics planes(RowLayout rows, DeviceBuffer out) {
    int n = rows.count();
    long named = (long) n * rows.top();
    return new Statistics(
        out.slice(rows.part(0), n),
        out.slice(rows.part(1), n),
        out.slice(rows.part(2), named).as(Element.I32),
        out.slice(rows.part(3), named),
        rows.top());
  }

  /** Lets the rows at {@code out}, which {@link #rebuild} just wrote, come to the host. */
  RebuiltRows bring(RowLayout rows, DeviceBuffer out) {
    Mirror mirror = mirrors.computeIfAbsent(out.address(), address -> mirror(out));
    mirror.underWay = true;
    long use = ++mirror.uses;
    ops.gpu()
        .run(
            () ->
                copyBehind(
                    rebuilt,
                    () -> {
                      long elements = Math.ceilDiv(rows.bytes(), out.element().bytes());
                      mirror.host.copyFrom(out, elements, 0);
                      mirror.copied.set();
                    }));
    return (row, into, count) -> {
      if (mirror.uses != use) {
        throw new IllegalStateException("other rows of attention were rebuilt in their place");
      }
      if (mirror.underWay) {
        mirror.copied.await();
        mirror.underWay = false;
      }
      rows.read(mirror.host.memory(), 0, row, into, count);
    };
  }

  private Mirror mirror(DeviceBuffer out) {
    HostBuffer host = arena.own(ops.gpu().pin(out.bytes()));
    CudaEvent copied = arena.own(ops.gpu().mark());
    arena.own(copied::await); // before the arena frees what is copied, and where to
    return new Mirror(host, copied);
  }
}
