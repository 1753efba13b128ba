package dev.loupe.interpret.trace;

/**
 * What every part of a model made of a text, on the host: x [L + 1][T C], the residual stream
 * before each layer and after the last; mid [L][T C], the same between attention and MLP; y [L][T
 * C], what the heads made, before c_proj; and the logits after the last token.
 */
final class Recording {
  final int tokens;
  final float[][] x;
  final float[][] mid;
  final float[][] y;
  final float[] logits;
  private final int width;
  private final int headDim;

  Recording(int tokens, int layers, int width, int headDim, int vocabulary) {
    this.tokens = tokens;
    this.width = width;
    this.headDim = headDim;
    int cells = Math.multiplyExact(tokens, width);
    x = new float[layers + 1][cells];
    mid = new float[layers][cells];
    y = new float[layers][cells];
    logits = new float[vocabulary];
  }

  /** Numbers in a row of a part's output: D of a head, C of an MLP. */
  int columns(Part part) {
    return part.isMlp() ? width : headDim;
  }

  /** What a part made: [T, D] of a head, before c_proj; [T, C] of an MLP, its bias included. */
  float[] output(Part part) {
    float[] out = new float[tokens * columns(part)];
    int layer = part.layer();
    if (part.isMlp()) {
      for (int i = 0; i < out.length; i++) {
        out[i] = x[layer + 1][i] - mid[layer][i];
      }
      return out;
    }
    for (int t = 0; t < tokens; t++) {
      System.arraycopy(y[layer], t * width + part.head() * headDim, out, t * headDim, headDim);
    }
    return out;
  }

  /** The mean of a part's output over the positions, at each of them. */
  float[] mean(Part part) {
    float[] out = output(part);
    int columns = columns(part);
    for (int c = 0; c < columns; c++) {
      double sum = 0;
      for (int t = 0; t < tokens; t++) {
        sum += out[t * columns + c];
      }
      float mean = (float) (sum / tokens);
      for (int t = 0; t < tokens; t++) {
        out[t * columns + c] = mean;
      }
    }
    return out;
  }
}
