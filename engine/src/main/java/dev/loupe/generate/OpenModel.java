package dev.loupe.generate;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.AttentionSelection.Part;
import dev.loupe.attention.ValueNorms;
import dev.loupe.model.AblatedModel;
import dev.loupe.model.Interventions;
import dev.loupe.model.ModelInfo;
import dev.loupe.model.Transformer;
import dev.loupe.ops.BackendException;
import dev.loupe.sampling.NotFiniteException;
import dev.loupe.text.Count;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Optional;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * A loaded model with its files and its tokenizer: what generation and interpretation work on. It
 * belongs to the {@code Loupe} that opened it, which closes it.
 *
 * <p>Safe for use by several threads.
 */
public final class OpenModel {
  private final Transformer transformer;
  private final Checkpoint checkpoint;
  private final Tokenizer tokenizer;
  private final ModelInfo info;
  private final Supplier<String> distrust;
  private @Nullable ValueNorms valueNorms; // once somebody wants them

  /**
   * @param distrust says how a user excludes a backend that may compute wrongly; empty if it is
   *     trusted
   */
  public OpenModel(
      Transformer transformer,
      Checkpoint checkpoint,
      Tokenizer tokenizer,
      ModelInfo info,
      Supplier<String> distrust) {
    this.transformer = transformer;
    this.checkpoint = checkpoint;
    this.tokenizer = tokenizer;
    this.info = info;
    this.distrust = distrust;
  }

  public Transformer transformer() {
    return transformer;
  }

  public Checkpoint checkpoint() {
    return checkpoint;
  }

  public Tokenizer tokenizer() {
    return tokenizer;
  }

  public ModelInfo info() {
    return info;
  }

  public Gpt2Config config() {
    return transformer.config();
  }

  /** The norms of the model's values, computed once; null where a selection does not keep them. */
  synchronized @Nullable ValueNorms valueNorms(Optional<AttentionSelection> selection) {
    if (selection.filter(each -> each.keeps(Part.VALUE_NORMS)).isEmpty()) {
      return null;
    }
    return valueNorms();
  }

  /** The norms of the model's values, computed once. */
  public synchronized ValueNorms valueNorms() {
    if (valueNorms == null) {
      valueNorms = new ValueNorms(checkpoint);
    }
    return valueNorms;
  }

  /**
   * The token ids of a prompt.
   *
   * @throws IllegalArgumentException if they do not fit the vocabulary
   */
  public int[] tokens(Prompt prompt) {
    return prompt.tokens(tokenizer, config());
  }

  /**
   * Likewise, of a text that is read whole.
   *
   * @throws IllegalArgumentException also if it is longer than the context
   */
  public int[] tokensToRead(Prompt prompt) {
    int[] ids = tokens(prompt);
    int most = config().nPositions();
    if (ids.length > most) {
      throw new IllegalArgumentException(
          "the text has %s and the model reads %d: shorten it by %d"
              .formatted(Count.of(ids.length, "token"), most, ids.length - most));
    }
    return ids;
  }

  /**
   * A position of a text that the model can read up to.
   *
   * @param asked from 0; negative for the last
   * @throws IllegalArgumentException if the text has no such token, or the context no place for it
   */
  public int position(int[] ids, int asked) {
    int at = asked < 0 ? ids.length - 1 : asked;
    if (at >= ids.length) {
      throw new IllegalArgumentException(
          "no token %d: the text has tokens 0..%d".formatted(at, ids.length - 1));
    }
    if (at >= config().nPositions()) {
      throw new IllegalArgumentException(
          "token %d: the model reads %d tokens".formatted(at, config().nPositions()));
    }
    return at;
  }

  /**
   * The model with interventions; the caller closes it.
   *
   * @param prompt what will be read: means of heads are taken over it
   * @throws IllegalArgumentException if they do not fit the model
   * @throws BackendException if its backend can't run the model so
   */
  public AblatedModel ablated(Interventions interventions, Prompt prompt) {
    Gpt2Config config = interventions.of(config());
    transformer
        .ops()
        .whyNot(config)
        .ifPresent(
            why -> {
              throw new BackendException(why);
            });
    int[] ids = tokens(prompt);
    int[] read = Arrays.copyOf(ids, prompt.lengthOf(ids.length));
    return new AblatedModel(transformer, checkpoint, interventions, read);
  }

  /**
   * Does work that may read weights from their files.
   *
   * @throws UncheckedIOException of a {@link CheckpointException}, if a file of the model was
   *     changed meanwhile
   * @throws NotFiniteException if the model computes NaN or infinity; the message names a weight
   *     that explains it
   */
  public <T> T onFiles(Supplier<T> work) {
    try {
      T made;
      try {
        made = work.get();
      } catch (NotFiniteException e) {
        throw explain(e);
      } catch (InternalError e) {
        if (Checkpoint.isUnreadablePage(e)) {
          throw checkpoint.unreadable(e);
        }
        throw e;
      }
      checkpoint.checkUnchanged();
      return made;
    } catch (CheckpointException e) {
      throw new UncheckedIOException(e.getMessage(), e);
    }
  }

  /**
   * Checks that no other program has written to the model's files since they were opened.
   *
   * @throws UncheckedIOException of a {@link CheckpointException}, if one has; the message names
   *     the file
   */
  public void requireUnchanged() {
    try {
      checkpoint.checkUnchanged();
    } catch (CheckpointException e) {
      throw new UncheckedIOException(e.getMessage(), e);
    }
  }

  /** {@code cause}, with the first weight that explains it. */
  public NotFiniteException explain(NotFiniteException cause) {
    requireUnchanged();
    for (StoredTensor tensor : checkpoint.tensors()) {
      float[] row = new float[Math.toIntExact(tensor.shape().getLast())];
      for (long i = 0; i < tensor.elements(); i += row.length) {
        tensor.read(i, row, 0, row.length);
        for (int j = 0; j < row.length; j++) {
          if (!Float.isFinite(row[j])) {
            return new NotFiniteException(
                "%s: %s holds %s at element %d, so the model computes nothing of use"
                    .formatted(info.source(), tensor.name(), row[j], i + j));
          }
        }
      }
    }
    String why = distrust.get();
    return new NotFiniteException(
        "%s: all weights are finite, but %s: they overflow 32-bit floats%s"
            .formatted(
                info.source(),
                cause.getMessage(),
                why.isEmpty() ? "" : ", or the GPU computes wrongly" + why));
  }
}
