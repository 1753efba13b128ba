package dev.loupe.weights;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Writes pickles as Python's pickle module does, from its documentation; in protocol 2 or 4. */
public final class PickleWriter {
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
  private final DataOutputStream out = new DataOutputStream(bytes);
  private final int protocol;
  private final Map<String, Integer> memo = new HashMap<>();

  /** A value that writes itself. */
  public interface Pickled {
    void write(PickleWriter out);
  }

  public PickleWriter(int protocol) {
    this.protocol = protocol;
  }

  /** One whole pickle. */
  public static byte[] of(int protocol, @Nullable Object value) {
    PickleWriter writer = new PickleWriter(protocol);
    writer.value(value).op('.');
    byte[] body = writer.bytes.toByteArray();
    PickleWriter whole = new PickleWriter(protocol);
    whole.op(0x80).op(protocol);
    if (protocol >= 4) {
      whole.op(0x95).i64(body.length);
    }
    return whole.raw(body).bytes();
  }

  public byte[] bytes() {
    return bytes.toByteArray();
  }

  public PickleWriter value(@Nullable Object value) {
    switch (value) {
      case null -> op('N');
      case Pickled pickled -> pickled.write(this);
      case Boolean flag -> op(flag ? 0x88 : 0x89);
      case Integer number -> number(number);
      case Long number -> number(number);
      case Double number -> op('G').raw(ByteBuffer.allocate(8).putDouble(number).array());
      case String text -> remembered("str " + text, () -> text(text));
      case Map<?, ?> map -> {
        op('}').op('(');
        map.forEach((key, item) -> value(key).value(item));
        op('u');
      }
      case List<?> list -> tuple(list);
      default -> throw new IllegalArgumentException(value.toString());
    }
    return this;
  }

  /** A tuple; {@link List} stands for one, since torch writes hardly any lists. */
  private void tuple(List<?> items) {
    int size = items.size();
    if (size == 0 || size > 3) {
      op(size == 0 ? ')' : '(');
    }
    items.forEach(this::value);
    if (size > 0) {
      op(size > 3 ? 't' : 0x84 + size);
    }
  }

  public static Pickled list(Object... items) {
    return out -> {
      out.op(']').op('(');
      for (Object item : items) {
        out.value(item);
      }
      out.op('e');
    };
  }

  public static Pickled global(String module, String name) {
    return out ->
        out.remembered(
            "global " + module + "." + name,
            () -> {
              if (out.protocol >= 4) {
                out.value(module).value(name).op(0x93);
              } else {
                out.op('c').ascii(module + "\n" + name + "\n");
              }
            });
  }

  public static Pickled call(String module, String name, List<?> arguments) {
    return out -> out.value(global(module, name)).value(arguments).op('R');
  }

  /** An OrderedDict with the attribute that state dicts have. */
  public static Pickled orderedDict(Map<String, ?> items) {
    return out -> {
      out.value(call("collections", "OrderedDict", List.of())).op('(');
      items.forEach((key, item) -> out.value(key).value(item));
      out.op('u').value(Map.of("_metadata", Map.of("", Map.of("version", 1)))).op('b');
    };
  }

  private void remembered(String what, Runnable write) {
    Integer known = memo.get(what);
    if (known != null) {
      if (known < 256) {
        op('h').op(known);
      } else {
        op('j').i32(known);
      }
      return;
    }
    write.run();
    int index = memo.size();
    memo.put(what, index);
    if (protocol >= 4) {
      op(0x94);
    } else if (index < 256) {
      op('q').op(index);
    } else {
      op('r').i32(index);
    }
  }

  private void text(String text) {
    byte[] utf8 = text.getBytes(StandardCharsets.UTF_8);
    if (protocol >= 4 && utf8.length < 256) {
      op(0x8c).op(utf8.length);
    } else {
      op('X').i32(utf8.length);
    }
    raw(utf8);
  }

  private void number(long value) {
    if (value >= 0 && value < 256) {
      op('K').op((int) value);
    } else if (value >= 0 && value < 65536) {
      op('M').op((int) value & 255).op((int) value >> 8);
    } else if (value == (int) value) {
      op('J').i32((int) value);
    } else {
      op(0x8a).op(8).i64(value);
    }
  }

  public PickleWriter op(int opcode) {
    return raw(new byte[] {(byte) opcode});
  }

  PickleWriter ascii(String text) {
    return raw(text.getBytes(StandardCharsets.US_ASCII));
  }

  PickleWriter i32(int value) {
    return raw(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(value).array());
  }

  PickleWriter i64(long value) {
    return raw(ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(value).array());
  }

  PickleWriter raw(byte[] more) {
    try {
      out.write(more);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return this;
  }
}
