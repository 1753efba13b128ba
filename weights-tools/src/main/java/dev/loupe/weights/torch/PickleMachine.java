package dev.loupe.weights.torch;

import dev.loupe.weights.io.ByteReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.StrictJson;
import java.lang.foreign.ValueLayout;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads one pickle: a program for a stack machine, of which nothing is run but what builds numbers,
 * text, lists, dicts and, by {@link TorchObjects}, tensors. It knows the opcodes that torch and
 * plain dicts need in protocols 1 to 5; every other one is refused.
 *
 * <p>The values: {@link Long}, {@link Double}, {@link Boolean}, {@link String}, {@link List} (also
 * tuples), {@link Map} of text (integer keys are their digits), {@link #NONE}, and what {@link
 * TorchObjects} makes. Lists and maps may contain themselves, so never ask one for its hash or its
 * text.
 *
 * <p>Hostile pickles can't take long or much: each step makes at most about a hundred bytes, text
 * apart, which is no longer than the pickle, and steps are counted.
 *
 * <p>Source: {@code Lib/pickletools.py} of CPython, which describes every opcode.
 */
final class PickleMachine {
  /** Python's None, and whatever else a checkpoint holds that Loupe has no use for. */
  static final Object NONE =
      new Object() {
        @Override
        public String toString() {
          return "None";
        }
      };

  static final int MAX_BYTES = 32 << 20;
  private static final int MAX_STEPS = 1 << 19; // GPT-2 XL and its optimizer take a sixth
  private static final int MAX_LINE = 200; // the longest name of a global, or number in digits

  private static final ValueLayout.OfDouble F64_BIG_ENDIAN =
      ValueLayout.JAVA_DOUBLE_UNALIGNED.withOrder(ByteOrder.BIG_ENDIAN);

  private final InputFile file;
  private final ByteReader in;
  private final TorchObjects objects;
  private final ArrayList<Object> stack = new ArrayList<>();
  private final ArrayList<Integer> marks = new ArrayList<>();
  private final Map<Integer, Object> memo = new HashMap<>();

  /**
   * @param start where in the file the pickle starts
   * @param end where it ends at the latest; the file may go on after it
   */
  PickleMachine(InputFile file, long start, long end, TorchObjects objects) {
    this.file = file;
    this.in = new ByteReader(file, "the pickle", start, Math.min(end, start + MAX_BYTES));
    this.objects = objects;
  }

  /** Where in the file the next byte is; after {@link #run}, the first after the pickle. */
  long at() {
    return in.at();
  }

  /**
   * Reads the pickle.
   *
   * @return the object it describes
   * @throws CheckpointException if it is damaged, or asks for anything that no weights need
   */
  Object run() throws CheckpointException {
    long opcodeAt = in.at();
    try {
      for (int step = 0; step < MAX_STEPS; step++) {
        opcodeAt = in.at();
        int opcode = in.u8();
        if (opcode == '.') {
          return pop();
        }
        if (!scalar(opcode) && !container(opcode) && !memo(opcode) && !object(opcode)) {
          throw new IllegalArgumentException(
              "opcode 0x%02x, which no weights need".formatted(opcode));
        }
      }
      throw new IllegalArgumentException("more than %d steps".formatted(MAX_STEPS));
    } catch (IllegalArgumentException e) {
      throw new CheckpointException(
          "%s: the pickle has at byte %d %s".formatted(file.path(), opcodeAt, e.getMessage()), e);
    }
  }

  private boolean scalar(int opcode) throws CheckpointException {
    switch (opcode) {
      case 'N' -> push(NONE);
      case 0x88 -> push(true);
      case 0x89 -> push(false);
      case 'J' -> push((long) in.u32());
      case 'K' -> push((long) in.u8());
      case 'M' -> push((long) Short.toUnsignedInt(in.u16()));
      case 'I' -> decimal(line());
      case 'L' -> decimal(line().replaceFirst("L$", ""));
      case 0x8a -> binary(in.u8()); // LONG1
      case 'G' -> push(file.bytes().get(F64_BIG_ENDIAN, in.skip(8)));
      case 'U', 0x8c, 'C' -> push(text(in.u8())); // a str of Python 2, a str, bytes
      case 'T', 'X', 'B' -> push(text(Integer.toUnsignedLong(in.u32())));
      case 0x8d, 0x8e -> push(text(in.u64()));
      default -> {
        return false;
      }
    }
    return true;
  }

  private boolean container(int opcode) {
    switch (opcode) {
      case '(' -> marks.add(stack.size());
      case ')' -> push(List.of());
      case 0x85, 0x86, 0x87 -> push(popFrom(stack.size() - (opcode - 0x84)));
      case 't' -> push(popToMark());
      case ']' -> push(new ArrayList<>(0));
      case 'a' -> {
        List<Object> item = popFrom(stack.size() - 1);
        append(item);
      }
      case 'e' -> append(popToMark());
      case '}' -> push(new LinkedHashMap<>());
      case 's' -> put(popFrom(stack.size() - 2));
      case 'u' -> put(popToMark());
      default -> {
        return false;
      }
    }
    return true;
  }

  private boolean memo(int opcode) throws CheckpointException {
    switch (opcode) {
      case 'q' -> memo.put(in.u8(), top());
      case 'r' -> memo.put(in.u32(), top());
      case 0x94 -> memo.put(memo.size(), top());
      case 'h' -> recall(in.u8());
      case 'j' -> recall(in.u32());
      default -> {
        return false;
      }
    }
    return true;
  }

  private boolean object(int opcode) throws CheckpointException {
    switch (opcode) {
      case 0x80 -> {
        int protocol = in.u8();
        if (protocol > 5) {
          throw new IllegalArgumentException("protocol %d; known are 1 to 5".formatted(protocol));
        }
      }
      case 0x95 -> in.skip(8); // FRAME: a hint for reading ahead
      case 'c' -> {
        String module = line();
        push(objects.global(module, line()));
      }
      case 0x93 -> {
        List<Object> name = popFrom(stack.size() - 2);
        push(objects.global(string(name.getFirst()), string(name.getLast())));
      }
      case 'R', 0x81 -> { // REDUCE, and NEWOBJ, which makes an object of a class
        List<Object> call = popFrom(stack.size() - 2);
        push(objects.call(call.getFirst(), list(call.getLast())));
      }
      case 'b' -> pop(); // BUILD: attributes, such as the _metadata of a state dict
      case 'Q' -> push(objects.storage(list(pop())));
      default -> {
        return false;
      }
    }
    return true;
  }

  private void push(Object value) {
    stack.add(value);
  }

  private Object top() {
    if (stack.isEmpty() || (!marks.isEmpty() && marks.getLast() == stack.size())) {
      throw new IllegalArgumentException("an opcode that takes a value where there is none");
    }
    return stack.getLast();
  }

  private Object pop() {
    Object value = top();
    stack.removeLast();
    return value;
  }

  private List<Object> popToMark() {
    if (marks.isEmpty()) {
      throw new IllegalArgumentException("the end of a group that never began");
    }
    int mark = marks.removeLast();
    return popFrom(mark);
  }

  /** Takes everything from this place of the stack upwards, which must not reach below a mark. */
  private List<Object> popFrom(int place) {
    if (place < (marks.isEmpty() ? 0 : marks.getLast())) {
      throw new IllegalArgumentException("an opcode that takes values where there are none");
    }
    List<Object> top = stack.subList(place, stack.size());
    List<Object> values = new ArrayList<>(top);
    top.clear();
    return values;
  }

  @SuppressWarnings("unchecked") // lists on the stack are all the machine's own
  private void append(List<Object> items) {
    if (!(top() instanceof ArrayList<?> list)) {
      throw new IllegalArgumentException("items for what is no list");
    }
    ((List<Object>) list).addAll(items);
  }

  @SuppressWarnings("unchecked") // and so are maps
  private void put(List<Object> keysAndValues) {
    if (!(top() instanceof LinkedHashMap<?, ?> map)) {
      throw new IllegalArgumentException("entries for what is no dict");
    }
    if (keysAndValues.size() % 2 != 0) {
      throw new IllegalArgumentException("a key without a value");
    }
    for (int i = 0; i < keysAndValues.size(); i += 2) {
      // keys of one type only: those of two, with equal hashes, would make a map slow
      String key =
          switch (keysAndValues.get(i)) {
            case String text -> text;
            case Long number -> number.toString();
            default ->
                throw new IllegalArgumentException("a dict with a key that is no text or integer");
          };
      ((Map<String, Object>) map).put(key, keysAndValues.get(i + 1));
    }
  }

  private void recall(int index) {
    Object value = memo.get(index);
    if (value == null) {
      throw new IllegalArgumentException(
          "a reference to memo %s, which is empty".formatted(Integer.toUnsignedString(index)));
    }
    push(value);
  }

  private void decimal(String digits) {
    switch (digits) {
      case "00" -> push(false); // booleans of protocol 1
      case "01" -> push(true);
      default -> {
        Long value = StrictJson.wholeNumber(digits);
        push(value == null ? NONE : value);
      }
    }
  }

  /**
   * A two's complement, little-endian integer; NONE if it fits no long, since no weights need it.
   */
  private void binary(int length) throws CheckpointException {
    long from = in.skip(length);
    if (length > Long.BYTES) {
      push(NONE);
      return;
    }
    long value = 0;
    for (int i = 0; i < length; i++) {
      value |= (file.byteAt(from + i) & 0xFFL) << (8 * i);
    }
    int unused = Long.SIZE - 8 * length;
    push(length == 0 ? 0L : value << unused >> unused);
  }

  private String text(long length) throws CheckpointException {
    byte[] utf8 = file.bytes().asSlice(in.skip(length), length).toArray(ValueLayout.JAVA_BYTE);
    return new String(utf8, StandardCharsets.UTF_8);
  }

  private String line() throws CheckpointException {
    StringBuilder line = new StringBuilder();
    for (int c = in.u8(); c != '\n'; c = in.u8()) {
      if (line.length() == MAX_LINE) {
        throw new IllegalArgumentException("a line of more than %d bytes".formatted(MAX_LINE));
      }
      line.append((char) c);
    }
    return line.toString();
  }

  private static String string(Object value) {
    if (value instanceof String string) {
      return string;
    }
    throw new IllegalArgumentException("something else where a name should be");
  }

  private static List<?> list(Object value) {
    if (value instanceof List<?> list) {
      return list;
    }
    throw new IllegalArgumentException("something else where a tuple should be");
  }
}
