package dev.loupe.generate;

import dev.loupe.attention.AttentionResult;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A text that is being read and written: a sample of a run, and how much of it the KV cache holds.
 * The scheduler's lock guards it, and its run's own thread between two passes.
 */
final class Sequence {
  final Run run;
  final Sample sample;
  final List<AttentionResult> results; // the one of its sample

  /** Its place in the KV cache; -1 while it waits for one. */
  int slot = -1;

  /** Tokens at its start that have slid out of the context. */
  int dropped;

  /** Tokens whose rows of attention have been kept. */
  int recorded;

  /** No pass has to read it any more. */
  boolean over;

  /** Its logits are there, and the next token is to be chosen. */
  boolean due;

  /** Logits [V] of its newest token, once there are any. */
  float @Nullable [] logits;

  /** Its cache holds the prompt, and its run the logits after it. */
  boolean starts;

  /** What the device knows of it, while the device writes it. */
  DeviceDecoder.@Nullable Writing writing;

  /** What the device chose as its next token; null where the host chooses. */
  DeviceDecoder.@Nullable Chosen chosen;

  private final int firstDropped;

  Sequence(Run run, Sample sample, int dropped) {
    this.run = run;
    this.sample = sample;
    results = List.of(sample.attention);
    this.dropped = dropped;
    firstDropped = dropped;
  }

  /** Whether more tokens have left the context than the prompt has too many. */
  boolean hasSlid() {
    return dropped != firstDropped;
  }

  /** Tokens that the next passes have to read, where the cache holds {@code cached} of them. */
  int unread(int cached) {
    return sample.length() - dropped - cached;
  }

  /** The logits of its newest token go here. */
  float[] room(int vocabulary) {
    if (logits == null) {
      logits = new float[vocabulary];
    }
    return logits;
  }
}
