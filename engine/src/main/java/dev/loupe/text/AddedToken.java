package dev.loupe.text;

/**
 * A token that is found in the text as it stands, before byte-level BPE sees the rest: an entry of
 * {@code added_tokens} in a tokenizer.json.
 *
 * @param content its literal text; not spelled in the byte alphabet
 * @param id vocabulary id, which may lie beyond the BPE vocabulary
 * @param special a control token, e.g. {@code <|endoftext|>}: not part of the text it stands in
 * @param singleWord only where no letter, digit or underscore touches it
 * @param lstrip it swallows the white space before it
 * @param rstrip it swallows the white space after it
 */
record AddedToken(
    String content, int id, boolean special, boolean singleWord, boolean lstrip, boolean rstrip) {

  AddedToken {
    if (content.isEmpty()) {
      throw new IllegalArgumentException("added token %d is empty".formatted(id));
    }
  }
}
