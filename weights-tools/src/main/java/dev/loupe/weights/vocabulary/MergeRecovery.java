package dev.loupe.weights.vocabulary;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Finds the merges of a byte-level BPE from its tokens alone. Training gives each merge the next
 * id, so that the tokens of more than one byte, in the order of their ids, are the results of the
 * merges in their order; and what a merge joined is what BPE with the merges before it makes of the
 * token.
 */
public final class MergeRecovery {
  /** Pairs that may be looked at, many times what GPT-2 takes, in less than a second. */
  private static final long MOST_WORK = 20_000_000;

  private final Map<Long, Integer> merged = new HashMap<>(1 << 17); // pair of ids -> id
  private final int[] ofByte = new int[256];
  private final List<byte[]> tokens;
  private long work;

  private MergeRecovery(List<byte[]> tokens) {
    this.tokens = tokens;
    Arrays.fill(ofByte, -1);
  }

  /**
   * The merges.
   *
   * @param tokens bytes, by id
   * @param special the id that is none of BPE's
   * @return {@code "left right"} in GPT-2's byte alphabet, the first that applies first
   * @throws IllegalArgumentException if the tokens are not those of a byte-level BPE, or not in the
   *     order of its training; the message names the token
   */
  public static List<String> merges(List<byte[]> tokens, int special) {
    return new MergeRecovery(tokens).merges(special);
  }

  private List<String> merges(int special) {
    for (int id = 0; id < tokens.size(); id++) {
      byte[] token = tokens.get(id);
      if (token.length == 0) {
        throw new IllegalArgumentException("token %d is empty".formatted(id));
      }
      if (token.length == 1 && id != special) {
        int before = ofByte[token[0] & 0xFF];
        if (before >= 0) {
          throw new IllegalArgumentException(
              "tokens %d and %d are the same byte".formatted(before, id));
        }
        ofByte[token[0] & 0xFF] = id;
      }
    }
    List<String> merges = new ArrayList<>();
    for (int id = 0; id < tokens.size(); id++) {
      if (tokens.get(id).length > 1 && id != special) {
        merges.add(merge(id));
      }
    }
    return merges;
  }

  /** The merge that makes a token, which the later ones may then use. */
  private String merge(int id) {
    byte[] token = tokens.get(id);
    int[] parts = new int[token.length];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = ofByte[token[i] & 0xFF];
      if (parts[i] < 0) {
        throw new IllegalArgumentException(
            "token %d has byte %02X, which is no token".formatted(id, token[i] & 0xFF));
      }
    }
    int n = parts.length;
    for (int at = first(parts, n); at >= 0; at = first(parts, n)) {
      parts[at] = merged.getOrDefault(pair(parts, at), -1);
      System.arraycopy(parts, at + 2, parts, at + 1, n - at - 2);
      n--;
    }
    if (n != 2) {
      throw new IllegalArgumentException(
          "token %d is made of %d of the tokens before it, not of 2".formatted(id, n));
    }
    merged.put(pair(parts, 0), id);
    return ByteAlphabet.spell(tokens.get(parts[0]))
        + " "
        + ByteAlphabet.spell(tokens.get(parts[1]));
  }

  /** Where the pair is that the earliest merge joins, the leftmost of them; -1 if there is none. */
  private int first(int[] parts, int n) {
    work += n;
    if (work > MOST_WORK) {
      throw new IllegalArgumentException("its tokens are too long to find the merges again");
    }
    int best = -1;
    int lowest = Integer.MAX_VALUE;
    for (int i = 0; i + 1 < n; i++) {
      int id = merged.getOrDefault(pair(parts, i), Integer.MAX_VALUE);
      if (id < lowest) {
        lowest = id;
        best = i;
      }
    }
    return best;
  }

  private static long pair(int[] parts, int at) {
    return ((long) parts[at] << Integer.SIZE) | parts[at + 1];
  }
}
