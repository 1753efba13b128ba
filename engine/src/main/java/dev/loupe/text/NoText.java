package dev.loupe.text;

/** Encodes nothing: the model's tokens are known by their ids alone. */
record NoText(String why) implements Encoder {
  @Override
  public long[] encode(String text) {
    if (text.isEmpty()) {
      return new long[0];
    }
    throw new IllegalArgumentException("this model takes token ids alone: " + why);
  }

  @Override
  public void close() {}
}
