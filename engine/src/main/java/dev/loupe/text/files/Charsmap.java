package dev.loupe.text.files;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.util.ArrayDeque;
import java.util.BitSet;
import org.jspecify.annotations.Nullable;

/**
 * SentencePiece's compiled rules that replace characters: a trie of what is replaced, in one array
 * of units, and the replacements, each ended by a zero byte.
 *
 * <pre>
 * size of the trie in bytes (u32, little-endian), its units (u32 each), the replacements (UTF-8)
 * </pre>
 *
 * <p>Sources: {@code normalizer.cc} of google/sentencepiece; {@code darts.h} of s-yata/darts-clone.
 */
public final class Charsmap {
  private static final int LABEL = 0x800000FF;

  private final int[] units;
  private final byte[] replacements;

  /**
   * Reads the rules and follows every path of the trie.
   *
   * @throws IllegalArgumentException if one leads out of the array: native code would end with it
   */
  public Charsmap(ByteBuffer blob) {
    ByteBuffer in = blob.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    int size = in.remaining() < Integer.BYTES ? -1 : in.getInt();
    if (size < Integer.BYTES || size % Integer.BYTES != 0 || size > in.remaining()) {
      throw damaged();
    }
    units = new int[size / Integer.BYTES];
    in.asIntBuffer().get(units);
    in.position(in.position() + size);
    replacements = new byte[in.remaining()];
    in.get(replacements);
    try {
      UTF_8.newDecoder().decode(ByteBuffer.wrap(replacements));
    } catch (CharacterCodingException e) {
      throw damaged();
    }
    check();
  }

  private static IllegalArgumentException damaged() {
    return new IllegalArgumentException("its precompiled_charsmap is damaged");
  }

  private void check() {
    BitSet seen = new BitSet(units.length);
    ArrayDeque<Integer> open = new ArrayDeque<>();
    open.add(offset(units[0]));
    while (!open.isEmpty()) {
      int base = open.remove();
      if (base < 0 || (base | 0xFF) >= units.length) {
        throw damaged();
      }
      if (seen.get(base)) {
        continue;
      }
      seen.set(base);
      for (int b = 1; b <= 0xFF; b++) {
        int unit = units[base ^ b];
        if ((unit & LABEL) == b) {
          int next = (base ^ b) ^ offset(unit);
          if (hasLeaf(unit)) {
            checkLeaf(next);
          }
          open.add(next);
        }
      }
    }
  }

  private void checkLeaf(int node) {
    if (node < 0 || node >= units.length) {
      throw damaged();
    }
    int start = units[node] & Integer.MAX_VALUE;
    boolean inside = start < replacements.length && (replacements[start] & 0xC0) != 0x80;
    if (!inside) {
      throw damaged();
    }
  }

  private static boolean hasLeaf(int unit) {
    return ((unit >>> 8) & 1) == 1;
  }

  private static int offset(int unit) {
    return (unit >>> 10) << ((unit & (1 << 9)) >>> 6);
  }

  /** A replacement: how many bytes of the text it stands for, and the text instead. */
  public record Match(int length, String replacement) {}

  /** The rule for the longest beginning of the bytes at {@code from}; null if there is none. */
  public @Nullable Match longest(byte[] utf8, int from) {
    int length = 0;
    int start = -1;
    int node = offset(units[0]);
    for (int i = from; i < utf8.length && utf8[i] != 0; i++) {
      node ^= utf8[i] & 0xFF;
      int unit = units[node];
      if ((unit & LABEL) != (utf8[i] & 0xFF)) {
        break;
      }
      node ^= offset(unit);
      if (hasLeaf(unit)) {
        length = i + 1 - from;
        start = units[node] & Integer.MAX_VALUE;
      }
    }
    if (start < 0) {
      return null;
    }
    int end = start;
    while (end < replacements.length && replacements[end] != 0) {
      end++;
    }
    return new Match(length, new String(replacements, start, end - start, UTF_8));
  }
}
