package dev.loupe.cuda.kernels;

import static dev.loupe.cuda.driver.Parameter.FLOAT;
import static dev.loupe.cuda.driver.Parameter.INT;
import static dev.loupe.cuda.driver.Parameter.POINTER;

import dev.loupe.cuda.BufferCheck;
import dev.loupe.cuda.DeviceBuffer;
import dev.loupe.cuda.Kernel;
import dev.loupe.cuda.Launch;
import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.Parameter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * What the kernels of linear.cu and gemv.cu are called with: checked, and bound to a launch.
 *
 * @param check how its refusals begin
 * @param x [R, in] F32, or the element of the weight
 */
public record LinearArguments(
    BufferCheck check, LinearMap map, DeviceBuffer x, LinearEpilogue epilogue) {
  private static final Set<Element> FLOATS = Set.of(Element.F32, Element.F16, Element.BF16);

  public LinearArguments {
    check.holds("weight", map.weight(), 1);
    check.holds("x", x, map.in());
    if (x.element() != Element.F32 && (x.element() != map.weight().element())) {
      throw refusal(
          check,
          "no kernel for x in %s and W in %s".formatted(x.element(), map.weight().element()));
    }
    DeviceBuffer target = epilogue.target();
    check.holds("out", target, map.outputs());
    if (target.element() != Element.F32 && target.element() != x.element()) {
      throw refusal(
          check, "no kernel from x in %s to out in %s".formatted(x.element(), target.element()));
    }
    apart(check, "x", x, "out", target);
    apart(check, "weight", map.weight(), "out", target);
    switch (epilogue) {
      case LinearEpilogue.Output o -> {}
      case LinearEpilogue.Residual r -> check.holds("acc", r.acc(), Element.F32, map.outputs());
      case LinearEpilogue.QkvAppend append -> checkCache(check, append, map, x);
    }
  }

  private static void checkCache(
      BufferCheck check, LinearEpilogue.QkvAppend append, LinearMap map, DeviceBuffer x) {
    CacheShape cache = append.cache();
    if (map.outputs() != 3L * cache.width()) {
      throw refusal(
          check,
          "%d outputs for q, k and v of %d heads of width %d, which are %d"
              .formatted(map.outputs(), cache.heads(), cache.headSize(), 3L * cache.width()));
    }
    Element element = append.keys().element();
    if (!FLOATS.contains(element)) {
      throw refusal(check, "no kernel for a cache in %s".formatted(element));
    }
    check.holds("keys", append.keys(), element, cache.elements());
    check.holds("values", append.values(), element, cache.elements());
    check.holds("sequence", append.sequence(), Element.I32, 1);
    check.holds("position", append.position(), Element.I32, 1);
    apart(check, "keys", append.keys(), "values", append.values());
    apart(check, "out", append.qkv(), "keys", append.keys());
    apart(check, "out", append.qkv(), "values", append.values());
    apart(check, "x", x, "keys", append.keys());
    apart(check, "x", x, "values", append.values());
  }

  /** Blocks run in any order: what one writes, no other may read. */
  private static void apart(
      BufferCheck check, String nameA, DeviceBuffer a, String nameB, DeviceBuffer b) {
    if (a.address() < b.address() + b.bytes() && b.address() < a.address() + a.bytes()) {
      throw refusal(check, "%s and %s overlap".formatted(nameA, nameB));
    }
  }

  private static IllegalArgumentException refusal(BufferCheck check, String problem) {
    return new IllegalArgumentException(check.operation() + ": " + problem);
  }

  /** Rows that all buffers hold, at most {@code most}. */
  int maxRows(long most) {
    long rows = Math.min(most, x.elements() / map.in());
    rows = Math.min(rows, epilogue.target().elements() / map.outputs());
    if (epilogue instanceof LinearEpilogue.QkvAppend append) {
      rows = Math.min(rows, append.sequence().elements());
      rows = Math.min(rows, append.position().elements());
    }
    return (int) Math.min(rows, Integer.MAX_VALUE);
  }

  /** Ending of the name of the kernel with this epilogue. */
  String ending() {
    return switch (epilogue) {
      case LinearEpilogue.Output o -> "";
      case LinearEpilogue.Residual r -> "_residual";
      case LinearEpilogue.QkvAppend append -> "_qkv";
    };
  }

  /**
   * A launch of {@code kernel} with all parameters but the rows: x, W, what else the kernel is told
   * {@code ofWeight}, bias, target, rows, in, outputs, then those of the epilogue.
   */
  Launch bind(Kernel kernel, @Nullable Object... ofWeight) {
    List<@Nullable Object> values = new ArrayList<>();
    values.add(x);
    values.add(map.weight());
    values.addAll(Arrays.asList(ofWeight));
    values.add(map.bias());
    values.add(epilogue.target());
    values.add(0);
    values.add(map.in());
    values.add(map.outputs());
    addEpilogue(values);
    return launch(kernel, values);
  }

  /** A launch of epilogue.cu: sums (not set), bias, target, rows, outputs, then the epilogue's. */
  Launch bindEpilogue(Kernel kernel) {
    List<@Nullable Object> values = new ArrayList<>();
    values.add(null);
    values.add(map.bias());
    values.add(epilogue.target());
    values.add(0);
    values.add(map.outputs());
    addEpilogue(values);
    return launch(kernel, values);
  }

  private void addEpilogue(List<@Nullable Object> values) {
    int element = epilogue.target().element().code();
    switch (epilogue) {
      case LinearEpilogue.Output o -> values.addAll(List.of(element, o.activation().code()));
      case LinearEpilogue.Residual r -> {}
      case LinearEpilogue.QkvAppend a -> {
        CacheShape c = a.cache();
        values.addAll(
            List.of(element, a.keys(), a.values(), a.sequence(), a.position(), c.sequences()));
        values.addAll(List.of(c.heads(), c.headSize(), c.capacity(), a.keys().element().code()));
      }
    }
  }

  /**
   * Place of the rows among the parameters that {@link #bind} gives, with so many of the weight.
   */
  static int rowsAt(int ofWeight) {
    return 4 + ofWeight;
  }

  private static Launch launch(Kernel kernel, List<@Nullable Object> values) {
    Parameter[] parameters = new Parameter[values.size()];
    for (int i = 0; i < parameters.length; i++) {
      parameters[i] =
          switch (values.get(i)) {
            case Integer _ -> INT;
            case Float _ -> FLOAT;
            case null, default -> POINTER;
          };
    }
    Launch launch = new Launch(kernel, parameters);
    for (int i = 0; i < parameters.length; i++) {
      switch (values.get(i)) {
        case Integer value -> launch.set(i, value.intValue());
        case Float value -> launch.set(i, value.floatValue());
        case DeviceBuffer buffer -> launch.set(i, buffer);
        case null, default -> launch.setNull(i);
      }
    }
    return launch;
  }
}
