package dev.loupe.generate;

import dev.loupe.model.Interventions;
import dev.loupe.ops.Mask;

/**
 * A text to be read in one pass, of which nothing is written.
 *
 * @param prompt what is read
 * @param interventions changes to heads of the model, for this reading alone
 * @param mask which tokens each token reads
 * @param listener hears how far it has come
 */
public record ReadRequest(
    Prompt prompt, Interventions interventions, Mask mask, ReadListener listener) {

  /** Reads a prompt by the model as it is. */
  public static ReadRequest of(Prompt prompt) {
    return new ReadRequest(prompt, Interventions.NONE, Mask.CAUSAL, ReadListener.NONE);
  }

  /** Likewise, of a text. */
  public static ReadRequest text(String text) {
    return of(Prompt.text(text));
  }

  /** Likewise, of token ids. */
  public static ReadRequest ids(int... ids) {
    return of(Prompt.ids(ids));
  }

  /** With changes to heads of the model. */
  public ReadRequest interventions(Interventions interventions) {
    return new ReadRequest(prompt, interventions, mask, listener);
  }

  /** With another mask: {@link Mask#FULL} lets each token read those after it too. */
  public ReadRequest mask(Mask mask) {
    return new ReadRequest(prompt, interventions, mask, listener);
  }

  /** With somebody who hears how far it has come. */
  public ReadRequest listener(ReadListener listener) {
    return new ReadRequest(prompt, interventions, mask, listener);
  }
}
