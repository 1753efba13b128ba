package dev.loupe.interpret;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadRole;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.OpenModel;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadListener;
import dev.loupe.generate.Scheduler;
import dev.loupe.model.ModelInfo;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.CancellationException;

/**
 * What every head of a model does: on a text, cut into windows of the model's context, and on
 * random tokens that come twice, where nothing but the repetition can be read.
 *
 * <p>The random sequences are [BOS] a b c ... a b c ..., {@link #SEQUENCES} of them with up to
 * {@link #LENGTH} different tokens, the same each time a model is asked (Olsson et al., "In-context
 * Learning and Induction Heads", 2022; as many as in TransformerLens' Main Demo). BOS is there
 * where the model names one.
 *
 * @param model which model
 * @param onText over the windows that were read; empty if none was
 * @param windowsRead how many those are
 * @param windows how many the text has; more than were read if somebody ended the reading
 * @param onRepeated over all the random sequences
 */
public record HeadSurvey(
    ModelInfo model,
    Optional<HeadStatistics> onText,
    int windowsRead,
    int windows,
    HeadStatistics onRepeated) {
  /** How many random sequences are read. */
  public static final int SEQUENCES = 10;

  /** Most tokens that come twice in each; fewer where the context or the vocabulary is smaller. */
  public static final int LENGTH = 50;

  /** Tokens below which a text says little: with few keys to read, each gets much. */
  public static final int SHORTEST_TEXT = 32;

  private static final int SEED = 1;

  /**
   * What each head does, on a text in windows of the context, and on repeated random tokens.
   *
   * @param prompt the text, which may be long, or empty
   * @param listener if it ends the reading, what was read of the text counts
   * @throws IllegalArgumentException if an id is outside the vocabulary
   * @throws CancellationException if the listener ended it before the random tokens were read
   * @throws dev.loupe.cuda.driver.GpuException if the GPU fails
   */
  public static HeadSurvey of(OpenModel model, Prompt prompt, ReadListener listener) {
    Gpt2Config config = model.config();
    int[] text = prompt.tokens(model.tokenizer());
    List<int[]> windows = windows(text, config.nPositions());
    int length = length(config, model.tokenizer());
    Sequences reading = new Sequences(model, listener, config.nLayer(), SEQUENCES + windows.size());
    AttentionSelection selection = AttentionSelection.all().headStatisticsOnly().withValueNorms();
    HeadStatistics onRepeated =
        reading
            .all(sequences(config, model.tokenizer(), length), selection.repeated(length))
            .orElseThrow();
    Optional<HeadStatistics> onText;
    try {
      onText = reading.all(windows, selection);
    } catch (CancellationException e) { // before the first of them
      onText = Optional.empty();
    }
    return new HeadSurvey(
        model.info(), onText, reading.read - SEQUENCES, windows.size(), onRepeated);
  }

  /** Reads sequences one after the other. */
  private static final class Sequences implements GenerateRequest.Listener {
    private final OpenModel model;
    private final ReadListener listener;
    private final int layers;
    private final int total;
    private int read;

    Sequences(OpenModel model, ReadListener listener, int layers, int total) {
      this.model = model;
      this.listener = listener;
      this.layers = layers;
      this.total = total;
    }

    /**
     * The statistics of all of them together; of those before the one in which the listener had
     * enough.
     *
     * @throws CancellationException if that was the first
     */
    Optional<HeadStatistics> all(List<int[]> sequences, AttentionSelection selection) {
      Optional<HeadStatistics> all = Optional.empty();
      for (int[] ids : sequences) {
        HeadStatistics one;
        try {
          GenerateRequest request =
              GenerateRequest.ids(ids).tokens(0).attention(selection).listener(this);
          one = Scheduler.alone(model, request).getFirst().headStatistics().orElseThrow();
        } catch (CancellationException e) {
          if (all.isEmpty() || selection.repeated() > 0) {
            throw e;
          }
          return all;
        }
        read++;
        if (all.isPresent()) {
          all.get().add(one);
        } else {
          all = Optional.of(one);
        }
      }
      return all;
    }

    @Override
    public boolean reading(int layersDone, int layersOfOne) {
      return listener.reading(read * layers + layersDone, total * layers);
    }
  }

  private static List<int[]> windows(int[] text, int context) {
    List<int[]> windows = new ArrayList<>();
    for (int from = 0; from < text.length; from += context) {
      windows.add(Arrays.copyOfRange(text, from, Math.min(from + context, text.length)));
    }
    return windows;
  }

  private static int length(Gpt2Config config, Tokenizer tokenizer) {
    int bos = config.bosTokenId() < 0 ? 0 : 1;
    int fits = Math.min((config.nPositions() - bos) / 2, vocabulary(config, tokenizer).size());
    if (fits < 1) {
      throw new IllegalArgumentException(
          "a context of %d and %d plain tokens: no sequence can be repeated in it"
              .formatted(config.nPositions(), vocabulary(config, tokenizer).size()));
    }
    return Math.min(LENGTH, fits);
  }

  /** The ids that stand for text. */
  private static List<Integer> vocabulary(Gpt2Config config, Tokenizer tokenizer) {
    List<Integer> ids = new ArrayList<>();
    for (int id = 0; id < config.vocabSize(); id++) {
      if (id != config.bosTokenId() && tokenizer.contains(id) && !tokenizer.isSpecial(id)) {
        ids.add(id);
      }
    }
    return ids;
  }

  /** The ids of the random sequences that a model is asked about. */
  public static List<int[]> sequences(Gpt2Config config, Tokenizer tokenizer) {
    return sequences(config, tokenizer, length(config, tokenizer));
  }

  /** What is read twice in a row, {@code length} tokens each. */
  static List<int[]> sequences(Gpt2Config config, Tokenizer tokenizer, int length) {
    List<Integer> vocabulary = vocabulary(config, tokenizer);
    Random random = new Random(SEED);
    List<int[]> sequences = new ArrayList<>();
    for (int s = 0; s < SEQUENCES; s++) {
      Collections.shuffle(vocabulary, random); // so that no token comes twice by chance
      List<Integer> ids = new ArrayList<>();
      if (config.bosTokenId() >= 0) {
        ids.add(config.bosTokenId());
      }
      ids.addAll(vocabulary.subList(0, length));
      ids.addAll(vocabulary.subList(0, length));
      sequences.add(ids.stream().mapToInt(Integer::intValue).toArray());
    }
    return sequences;
  }

  /**
   * Where a score of these heads is from: what a head does with earlier tokens shows on repeated
   * random ones, the rest on the text, if it has {@link #SHORTEST_TEXT} tokens or more.
   */
  public HeadStatistics measured(HeadScore score) {
    return switch (score) {
      case PREVIOUS_TOKEN, DUPLICATE_TOKEN, INDUCTION -> onRepeated;
      default -> onText.filter(text -> text.tokens() >= SHORTEST_TEXT).orElse(onRepeated);
    };
  }

  /** A score from where it is {@link #measured}. */
  public double score(HeadScore score, int layer, int head) {
    return measured(score).score(score, layer, head);
  }

  /** What a head does most, if it does anything for more than {@link HeadRole#THRESHOLD}. */
  public Optional<HeadRole> role(int layer, int head) {
    return HeadRole.of(score -> score(score, layer, head));
  }

  /**
   * What a head does most by its scores on one text alone; nothing where the text has fewer than
   * {@link #SHORTEST_TEXT} tokens.
   */
  public static Optional<HeadRole> role(HeadStatistics onText, int layer, int head) {
    return onText.tokens() < SHORTEST_TEXT
        ? Optional.empty()
        : HeadRole.of(score -> onText.score(score, layer, head));
  }
}
