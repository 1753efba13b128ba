package dev.loupe.interpret;

import dev.loupe.generate.OpenModel;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadListener;
import dev.loupe.generate.Token;
import dev.loupe.model.ModelInfo;
import java.util.Arrays;
import java.util.List;

/**
 * Why a model says what it says after one token: what it would say after each layer, and what each
 * of its parts adds to the logit of one token, the target.
 *
 * <p>After each layer: the residual stream at the position, put through the last layer norm and the
 * head as if no layer followed (the logit lens; nostalgebraist, "interpreting GPT: the logit lens",
 * 2020). The last one is what the model says.
 *
 * <p>What parts add (direct logit attribution; Elhage et al., "A Mathematical Framework for
 * Transformer Circuits", 2021): the residual stream x at the end is a sum of what the embedding,
 * each head, each attention bias and each MLP wrote to it. With s = sqrt(variance(x) + epsilon) of
 * the last layer norm taken as it is, and g and b its weight and bias, a part o adds
 *
 * <pre>sum_c (o_c - mean(o)) g_c u_c / s,   u = W_U[target] - the mean of W_U over the vocabulary
 * </pre>
 *
 * to the target's logit above the vocabulary's mean, and b adds sum_c b_c u_c; a constant on all
 * logits changes no probability. Together they are {@link #logit}, up to rounding, that of weights
 * included which are kept narrower than the checkpoint has them. Only what goes straight to the
 * logits is counted, not what a part changes through later layers.
 *
 * @param model where it came from
 * @param tokens the text up to the position, and the token after it if the text has one
 * @param position of the token after which the model speaks, from 0
 * @param target the token in question, an id of the vocabulary
 * @param label how it is shown
 * @param layers L + 1: before the first layer, and after each
 * @param token what the token embedding adds
 * @param place what the position embedding adds
 * @param heads [L][H]: what each head adds, its part of c_proj applied, without the bias
 * @param attentionBiases [L]: what the biases of c_proj add
 * @param mlps [L]: what each MLP adds, its bias included
 * @param normBias what the bias of the last layer norm adds
 * @param logit the target's logit less the mean of all logits
 */
public record Lens(
    ModelInfo model,
    List<Token> tokens,
    int position,
    int target,
    String label,
    List<Guess> layers,
    double token,
    double place,
    List<List<Double>> heads,
    List<Double> attentionBiases,
    List<Double> mlps,
    double normBias,
    double logit) {

  /**
   * What the model would say.
   *
   * @param logprob natural log of the target's probability
   * @param rank how many tokens were more likely than the target
   * @param top the most likely tokens, best first
   */
  public record Guess(double logprob, int rank, List<Token.Candidate> top) {
    public Guess {
      top = List.copyOf(top);
    }
  }

  /**
   * Why the model says what it says after one token of a prompt.
   *
   * @param position of the token, from 0; negative for the last
   * @param target the token in question; negative for the one that follows in the text, or the
   *     likeliest at its end
   * @param top how many tokens are named after each layer
   * @param listener hears how far it has come
   * @throws IllegalArgumentException if the text has no such position, is longer than the context,
   *     or the vocabulary has no such token
   */
  public static Lens of(
      OpenModel model, Prompt prompt, int position, int target, int top, ReadListener listener) {
    int[] ids = model.tokens(prompt);
    int at = model.position(ids, position);
    if (target >= 0) {
      model.tokenizer().requireToken(target);
    }
    if (top < 0) {
      throw new IllegalArgumentException("the top %d tokens: not 0 or more".formatted(top));
    }
    int asked = target < 0 && at + 1 < ids.length ? ids[at + 1] : target;
    int[] shown = Arrays.copyOf(ids, Math.min(ids.length, at + 2));
    List<Token> tokens = Token.of(model.tokenizer(), prompt, shown);
    return model.onFiles(
        () -> {
          try (LensSession session = new LensSession(model, listener, Arrays.copyOf(ids, at + 1))) {
            return session.look(model.info(), tokens, asked, top);
          }
        });
  }

  public Lens {
    tokens = List.copyOf(tokens);
    layers = List.copyOf(layers);
    heads = heads.stream().map(List::copyOf).toList();
    attentionBiases = List.copyOf(attentionBiases);
    mlps = List.copyOf(mlps);
  }
}
