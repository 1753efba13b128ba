package dev.loupe.text;

import java.util.BitSet;

/**
 * Hugging Face's clean_up_tokenization_spaces: takes out spaces before punctuation and inside
 * contractions of English, which the decoder of a WordPiece tokenizer leaves. It only takes out.
 *
 * <p>Source: {@code clean_up_tokenization} in {@code tokenization_utils_base.py} of transformers.
 */
final class CleanUp {
  private static final String[] PATTERNS = {
    " .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"
  };

  /** Within so many characters, from the space on, it is decided whether a space goes. */
  private static final int LOOK_AHEAD = 7;

  private final StringBuilder text = new StringBuilder();
  private int done;

  /** Which characters of {@code text} go: spaces, each a char and a code point. */
  static BitSet spaces(CharSequence text) {
    StringBuilder left = new StringBuilder(text);
    int[] from = new int[text.length()]; // of what is left: where it was
    for (int i = 0; i < from.length; i++) {
      from[i] = i;
    }
    BitSet gone = new BitSet();
    for (String pattern : PATTERNS) {
      for (int at = left.indexOf(pattern); at >= 0; ) {
        int next = at + pattern.length();
        for (int i = next - 1; i >= at; i--) {
          if (left.charAt(i) == ' ') {
            gone.set(from[i]);
            System.arraycopy(from, i + 1, from, i, left.length() - i - 1);
            left.deleteCharAt(i);
            next--;
          }
        }
        at = left.indexOf(pattern, next);
      }
    }
    return gone;
  }

  /** {@code text} without those spaces. */
  static String clean(CharSequence text) {
    return kept(text, 0, text.length());
  }

  private static String kept(CharSequence text, int begin, int end) {
    BitSet gone = spaces(text);
    StringBuilder kept = new StringBuilder();
    for (int i = begin; i < end; i++) {
      if (!gone.get(i)) {
        kept.append(text.charAt(i));
      }
    }
    return kept.toString();
  }

  /** Takes text that is known; what follows is cleaned as what stands behind it. */
  void skip(String known) {
    text.append(known);
    done = text.length();
  }

  /** Takes the next piece; returns what is decided. */
  String push(String piece) {
    text.append(piece);
    int end = text.length();
    for (int i = Math.max(done, text.length() - LOOK_AHEAD); i < end; i++) {
      if (text.charAt(i) == ' ') {
        end = i;
      }
    }
    return until(end);
  }

  /** Ends the text; returns the rest of it. */
  String finish() {
    String rest = until(text.length());
    text.setLength(0);
    done = 0;
    return rest;
  }

  private String until(int end) {
    String decided = kept(text, done, end);
    done = end;
    return decided;
  }
}
