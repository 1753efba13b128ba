package dev.loupe.weights.config;

import java.util.List;
import java.util.function.Consumer;

/**
 * What a config.json says about the maths of a GPT-2 model. C = nEmbd, H = nHead, D = C / H, L =
 * nLayer, V = vocabSize.
 *
 * @param nLayer number of blocks, L
 * @param nHead attention heads per block, H; divides nEmbd
 * @param nEmbd width of the residual stream, C
 * @param nPositions longest sequence: rows of {@code wpe}
 * @param vocabSize rows of {@code wte}, V; may be padded beyond the tokenizer's vocabulary
 * @param nInner width of the MLP (a null {@code n_inner} means 4 C)
 * @param activation the MLP's nonlinearity
 * @param layerNormEpsilon added to the variance in every layer norm
 * @param scaleAttnWeights whether scores are divided by sqrt(D)
 * @param scaleAttnByInverseLayerIdx whether scores of layer l are divided by l + 1 as well
 * @param bosTokenId where an empty prompt starts; -1 if the config has none
 * @param eosTokenIds where generation stops: at the first of these, in the order in which the model
 *     names them; none if it names none
 */
public record Gpt2Config(
    int nLayer,
    int nHead,
    int nEmbd,
    int nPositions,
    int vocabSize,
    int nInner,
    Activation activation,
    float layerNormEpsilon,
    boolean scaleAttnWeights,
    boolean scaleAttnByInverseLayerIdx,
    int bosTokenId,
    List<Integer> eosTokenIds) {

  // Far beyond any GPT-2, low enough that 3 C, 4 C and the number of tensors fit an int.
  private static final int MAX_LAYERS = 4096;
  private static final int MAX_WIDTH = 1 << 20;
  private static final int MAX_ROWS = 1 << 24;

  /** GPT-2's {@code <|endoftext|>}. */
  public static final int END_OF_TEXT = 50256;

  public Gpt2Config {
    eosTokenIds = List.copyOf(eosTokenIds);
    between("n_layer", nLayer, MAX_LAYERS);
    between("n_head", nHead, MAX_WIDTH);
    between("n_embd", nEmbd, MAX_WIDTH);
    between("n_positions", nPositions, MAX_ROWS);
    between("vocab_size", vocabSize, MAX_ROWS);
    between("n_inner", nInner, MAX_ROWS);
    if (nEmbd % nHead != 0) {
      throw new IllegalArgumentException(
          "n_embd %d is not a multiple of n_head %d".formatted(nEmbd, nHead));
    }
    if (!(layerNormEpsilon > 0 && layerNormEpsilon < 1)) {
      throw new IllegalArgumentException(
          "layer_norm_epsilon %s is not between 0 and 1".formatted(layerNormEpsilon));
    }
    tokenId("bos_token_id", bosTokenId, vocabSize);
    for (int id : eosTokenIds) {
      tokenId("eos_token_id", id, vocabSize);
    }
  }

  /**
   * With one end token at most.
   *
   * @param eosTokenId where generation stops; -1 for nowhere
   */
  public Gpt2Config(
      int nLayer,
      int nHead,
      int nEmbd,
      int nPositions,
      int vocabSize,
      int nInner,
      Activation activation,
      float layerNormEpsilon,
      boolean scaleAttnWeights,
      boolean scaleAttnByInverseLayerIdx,
      int bosTokenId,
      int eosTokenId) {
    this(
        nLayer,
        nHead,
        nEmbd,
        nPositions,
        vocabSize,
        nInner,
        activation,
        layerNormEpsilon,
        scaleAttnWeights,
        scaleAttnByInverseLayerIdx,
        bosTokenId,
        eosTokenId == -1 ? List.of() : List.of(eosTokenId));
  }

  /**
   * What OpenAI's GPT-2 leaves unsaid, since it knows nothing else: an MLP of 4 C with the tanh
   * form of GELU, and norms that add 1e-5.
   *
   * @param endOfText the id where generation stops, left out where the vocabulary is smaller
   * @throws IllegalArgumentException if the sizes don't fit together
   */
  public static Gpt2Config openAi(
      int nLayer, int nHead, int nEmbd, int nPositions, int vocabSize, int endOfText) {
    int end = endOfText < vocabSize ? endOfText : -1;
    return new Gpt2Config(
        nLayer,
        nHead,
        nEmbd,
        nPositions,
        vocabSize,
        Math.clamp(4L * nEmbd, 0, MAX_ROWS),
        Activation.GELU_NEW,
        1e-5f,
        true,
        false,
        end,
        end);
  }

  /** The same with another nonlinearity. */
  public Gpt2Config withActivation(Activation other) {
    return with(draft -> draft.activation = other);
  }

  /** The same with other tokens that begin and end a text. */
  Gpt2Config withTokens(int bos, List<Integer> ends) {
    return with(
        draft -> {
          draft.bosTokenId = bos;
          draft.eosTokenIds = ends;
        });
  }

  /** The same with another number of rows; it has all tokens that begin and end a text. */
  public Gpt2Config withVocabulary(int rows) {
    return with(draft -> draft.vocabSize = rows);
  }

  /** The first {@code layers} of the model. */
  public Gpt2Config withLayers(int layers) {
    return with(draft -> draft.nLayer = layers);
  }

  /** The same weights cut into another number of heads; it divides nEmbd. */
  public Gpt2Config withHeads(int heads) {
    return with(draft -> draft.nHead = heads);
  }

  /** Whether generation stops after this token. */
  public boolean isEnd(int id) {
    return eosTokenIds.contains(id);
  }

  /** Width of one head, D. */
  public int headDim() {
    return nEmbd / nHead;
  }

  /**
   * Refuses a head that the model has not.
   *
   * @throws IllegalArgumentException saying which there are
   */
  public void requireHead(int layer, int head) {
    if (layer < 0 || layer >= nLayer || head < 0 || head >= nHead) {
      throw new IllegalArgumentException(
          "there is no head %d.%d: the model has layers 0..%d of heads 0..%d"
              .formatted(layer, head, nLayer - 1, nHead - 1));
    }
  }

  /** The factor on q.k in {@code layer}. */
  public float attentionScale(int layer) {
    double scale = scaleAttnWeights ? 1 / Math.sqrt(headDim()) : 1;
    return (float) (scaleAttnByInverseLayerIdx ? scale / (layer + 1) : scale);
  }

  private Gpt2Config with(Consumer<Draft> change) {
    Draft draft = new Draft(this);
    change.accept(draft);
    return new Gpt2Config(
        draft.nLayer,
        draft.nHead,
        draft.nEmbd,
        draft.nPositions,
        draft.vocabSize,
        draft.nInner,
        draft.activation,
        draft.layerNormEpsilon,
        draft.scaleAttnWeights,
        draft.scaleAttnByInverseLayerIdx,
        draft.bosTokenId,
        draft.eosTokenIds);
  }

  /** The same fields while some of them change. */
  private static final class Draft {
    private int nLayer;
    private int nHead;
    private int nEmbd;
    private int nPositions;
    private int vocabSize;
    private int nInner;
    private Activation activation;
    private float layerNormEpsilon;
    private boolean scaleAttnWeights;
    private boolean scaleAttnByInverseLayerIdx;
    private int bosTokenId;
    private List<Integer> eosTokenIds;

    Draft(Gpt2Config config) {
      nLayer = config.nLayer;
      nHead = config.nHead;
      nEmbd = config.nEmbd;
      nPositions = config.nPositions;
      vocabSize = config.vocabSize;
      nInner = config.nInner;
      activation = config.activation;
      layerNormEpsilon = config.layerNormEpsilon;
      scaleAttnWeights = config.scaleAttnWeights;
      scaleAttnByInverseLayerIdx = config.scaleAttnByInverseLayerIdx;
      bosTokenId = config.bosTokenId;
      eosTokenIds = config.eosTokenIds;
    }
  }

  private static void between(String name, int value, int max) {
    if (value < 1 || value > max) {
      throw new IllegalArgumentException(
          "%s is %d, not between 1 and %d".formatted(name, value, max));
    }
  }

  private static void tokenId(String name, int id, int vocabSize) {
    if (id < (name.startsWith("bos") ? -1 : 0) || id >= vocabSize) {
      throw new IllegalArgumentException(
          "%s %d is outside the vocabulary of %d".formatted(name, id, vocabSize));
    }
  }
}
