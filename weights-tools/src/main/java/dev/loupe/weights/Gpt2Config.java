package dev.loupe.weights;

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
 * @param eosTokenId where generation stops; -1 if the config has none
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
    int eosTokenId) {

  public Gpt2Config {
    positive("n_layer", nLayer);
    positive("n_head", nHead);
    positive("n_embd", nEmbd);
    positive("n_positions", nPositions);
    positive("vocab_size", vocabSize);
    positive("n_inner", nInner);
    if (nEmbd % nHead != 0) {
      throw new IllegalArgumentException(
          "n_embd %d is not a multiple of n_head %d".formatted(nEmbd, nHead));
    }
    if (!(layerNormEpsilon > 0 && layerNormEpsilon < 1)) {
      throw new IllegalArgumentException(
          "layer_norm_epsilon %s is not between 0 and 1".formatted(layerNormEpsilon));
    }
    tokenId("bos_token_id", bosTokenId, vocabSize);
    tokenId("eos_token_id", eosTokenId, vocabSize);
  }

  /** Width of one head, D. */
  public int headDim() {
    return nEmbd / nHead;
  }

  /** The factor on q.k in {@code layer}. */
  public float attentionScale(int layer) {
    double scale = scaleAttnWeights ? 1 / Math.sqrt(headDim()) : 1;
    return (float) (scaleAttnByInverseLayerIdx ? scale / (layer + 1) : scale);
  }

  private static void positive(String name, int value) {
    if (value < 1) {
      throw new IllegalArgumentException("%s is %d, not positive".formatted(name, value));
    }
  }

  private static void tokenId(String name, int id, int vocabSize) {
    if (id < -1 || id >= vocabSize) {
      throw new IllegalArgumentException(
          "%s %d is outside the vocabulary of %d".formatted(name, id, vocabSize));
    }
  }
}
