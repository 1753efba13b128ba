package dev.loupe;

/**
 * How to open a model.
 *
 * @param backend what to run on
 * @param threads CPU threads; 0 takes one for each processor that the process may use
 * @param hash whether to compute the SHA-256 of the weights, which reads all of them
 */
public record Options(Backend backend, int threads, boolean hash) {
  public Options {
    if (threads < 0 || threads > 1024) {
      throw new IllegalArgumentException("%d threads: not 0 to 1024".formatted(threads));
    }
  }

  /** The best backend there is, all processors. */
  public static Options defaults() {
    return new Options(Backend.AUTO, 0, false);
  }

  public Options backend(Backend backend) {
    return new Options(backend, threads, hash);
  }

  public Options threads(int threads) {
    return new Options(backend, threads, hash);
  }

  public Options hash(boolean hash) {
    return new Options(backend, threads, hash);
  }
}
