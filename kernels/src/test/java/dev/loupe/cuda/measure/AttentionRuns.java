package dev.loupe.cuda.measure;

import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Variant;
import dev.loupe.cuda.kernels.AttentionKernels;
import dev.loupe.cuda.kernels.AttentionMapKernels;
import dev.loupe.cuda.kernels.CacheShape;
import dev.loupe.cuda.kernels.DecodeAttention;
import dev.loupe.cuda.kernels.Segment;
import dev.loupe.cuda.kernels.Segments;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/** The launches of {@link VariantRuns} that attend, and those that rebuild maps. */
final class AttentionRuns {
  private static final float SCALE = 0.125f;

  private final RunBuffers memory;
  private final Gpu gpu;
  private final VariantRuns.Shapes shapes;

  AttentionRuns(RunBuffers memory, VariantRuns.Shapes shapes) {
    this.memory = memory;
    this.gpu = memory.gpu;
    this.shapes = shapes;
  }

  VariantRuns.Run attention(Variant v, Element e) {
    int rows = shapes.context();
    AttentionKernels kernels =
        memory.keep(new AttentionKernels(gpu, cache(rows), e), AttentionKernels::close);
    Segments segments = memory.keep(new Segments(gpu, 1), Segments::close);
    segments.set(List.of(new Segment(0, rows, 0, 0)));
    int c = cache(rows).width();
    AttentionKernels.Buffers buffers =
        new AttentionKernels.Buffers(
            memory.floats(e, rows, 3, c),
            memory.floats(e, rows, c),
            memory.floats(e, rows, c),
            memory.empty(e, rows, c),
            memory.empty(Element.F32, rows, shapes.heads()));
    return new VariantRuns.Run(
        v,
        e,
        3L * buffers.k().bytes() + segments.buffer().bytes(),
        buffers.y().bytes() + buffers.lse().bytes(),
        () -> kernels.run(v, segments, true, SCALE, buffers));
  }

  private CacheShape cache(int positions) {
    return new CacheShape(1, shapes.heads(), positions, shapes.headSize());
  }

  VariantRuns.Run decode(Variant v, Element e) {
    int keys = shapes.keys();
    int c = cache(keys).width();
    DecodeAttention kernels =
        memory.keep(new DecodeAttention(gpu, cache(keys), e, e, 1), DecodeAttention::close);
    DecodeAttention.Cache cache =
        new DecodeAttention.Cache(memory.floats(e, keys, c), memory.floats(e, keys, c));
    DecodeAttention.Rows rows =
        new DecodeAttention.Rows(
            memory.floats(e, 3, c), memory.ints(0), memory.ints(keys), 1, keys);
    DeviceBuffer y = memory.empty(e, c);
    DeviceBuffer lse = memory.empty(Element.F32, shapes.heads());
    return new VariantRuns.Run(
        v,
        e,
        y.bytes() + 2 * cache.k().bytes() + 2 * Integer.BYTES,
        y.bytes() + lse.bytes(),
        () -> kernels.run(rows, cache, SCALE, y, lse));
  }

  VariantRuns.Run map(Variant v, Element e) {
    AttentionMapKernels.Source source = mapSource(e);
    AttentionMapKernels.Selection want = lastRows();
    DeviceBuffer out =
        memory.empty(Element.F32, shapes.heads(), shapes.mapRows(), shapes.context());
    AttentionMapKernels kernels = new AttentionMapKernels(gpu, cache(shapes.context()), e, e);
    AttentionMapKernels.Layout layout = new AttentionMapKernels.Layout.Dense(shapes.context());
    return new VariantRuns.Run(
        v,
        e,
        leastReadOfMap(source, e),
        out.bytes(),
        () -> kernels.map(v, source, want, AttentionMapKernels.Cells.PROBABILITIES, layout, out));
  }

  VariantRuns.Run statistics(Variant v, Element e) {
    int rows = shapes.heads() * shapes.mapRows();
    AttentionMapKernels.Source source = mapSource(e);
    AttentionMapKernels.Selection want = lastRows();
    AttentionMapKernels.Statistics out =
        new AttentionMapKernels.Statistics(
            memory.empty(Element.F32, rows),
            memory.empty(Element.F32, rows),
            memory.empty(Element.I32, rows, VariantRuns.TOP),
            memory.empty(Element.F32, rows, VariantRuns.TOP),
            VariantRuns.TOP);
    AttentionMapKernels kernels = new AttentionMapKernels(gpu, cache(shapes.context()), e, e);
    return new VariantRuns.Run(
        v,
        e,
        leastReadOfMap(source, e),
        2 * out.entropy().bytes() + 2 * out.topKeys().bytes(),
        () -> kernels.statistics(v, source, want, out));
  }

  private AttentionMapKernels.Source mapSource(Element e) {
    int rows = shapes.context();
    int c = cache(rows).width();
    float[] lse = new float[rows * shapes.heads()];
    Arrays.fill(lse, (float) Math.log(rows));
    return new AttentionMapKernels.Source(
        memory.floats(e, rows, 3, c),
        memory.floats(e, rows, c),
        memory.upload(Element.F32, lse),
        memory.ints(0, rows, 0, 0),
        1,
        true,
        SCALE);
  }

  private AttentionMapKernels.Selection lastRows() {
    int heads = shapes.heads();
    return new AttentionMapKernels.Selection(
        memory.ints(IntStream.range(0, heads).toArray()),
        heads,
        shapes.context() - shapes.mapRows(),
        shapes.mapRows());
  }

  /** q and lse of the rows, all keys, the heads and the segment. */
  private long leastReadOfMap(AttentionMapKernels.Source source, Element e) {
    long ofRow = (long) e.bytes() * shapes.headSize() + Float.BYTES;
    return shapes.heads() * (shapes.mapRows() * ofRow + Integer.BYTES)
        + source.k().bytes()
        + source.segments().bytes();
  }
}
