package dev.loupe.cuda.selftest;

import dev.loupe.cuda.Card;
import dev.loupe.cuda.Gpu;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.GpuMemoryException;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * Goes through the {@link Trial}s of a card, in a process of its own: a kernel that ends its
 * process or never returns then takes nobody else with it. What comes of each is written as it
 * comes, one line a message, which {@link TrialProcess} reads.
 */
final class TrialRun {
  /** How a message begins, wherever in a line: libraries may write to the same stream. */
  static final String MARK = "@loupe-trial ";

  /** Hears what comes of the trials. */
  interface Listener {
    /** The card is open. */
    void opened();

    /** Trial {@code i} begins. */
    void tries(int i);

    /**
     * It has ended.
     *
     * @param wrong why the variant is wrong; empty if it is right
     */
    void found(int i, String wrong);
  }

  /** The card or its driver failed, and no kernel is to blame. */
  static final class CardFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    CardFailure(String message) {
      super(message);
    }
  }

  private TrialRun() {}

  /**
   * Runs trials from number {@code first} to the end, or until one makes the GPU report an error:
   * whatever that was, it may be reported again to the next one in this context.
   *
   * @return the number of the next trial
   * @throws CardFailure if the card fails, or does not open
   */
  static int run(int device, List<Trial> trials, int first, Listener listener) {
    try (Gpu gpu = Gpu.open(device)) {
      listener.opened();
      for (int i = first; i < trials.size(); i++) {
        listener.tries(i);
        try {
          SelfTest.Finding finding =
              SelfTest.of(gpu, trials.get(i).variant(), trials.get(i).element());
          if (finding.isRight()) {
            gpu.synchronize(); // a late failure is this one's
          }
          listener.found(i, finding.isRight() ? "" : finding.text().replaceFirst("^WRONG: ", ""));
          if (gpu.isLost()) {
            return i + 1;
          }
        } catch (GpuMemoryException e) {
          throw e;
        } catch (GpuException e) {
          if (gpu.hasCardFailed()) {
            throw e;
          }
          listener.found(i, "fails: " + e.getMessage());
          return i + 1;
        } catch (RuntimeException e) { // Loupe's own: nobody could use it
          listener.found(i, "fails: " + e);
        }
      }
      return trials.size();
    } catch (GpuException e) {
      throw new CardFailure(String.valueOf(e.getMessage()));
    }
  }

  /**
   * The child's main.
   *
   * @param args number of the device, key of the card, number of the first trial
   */
  public static void main(String[] args) {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    endWithParent();
    try {
      int device = Integer.parseInt(args[0]);
      Card card = Card.find(device);
      if (!card.key().equals(args[1])) {
        say(out, "card", "GPU %d is another in a process of its own".formatted(device));
        return;
      }
      int next =
          run(
              device,
              Trial.of(card),
              Integer.parseInt(args[2]),
              new Listener() {
                @Override
                public void opened() {
                  say(out, "ready", "");
                }

                @Override
                public void tries(int i) {
                  say(out, "try", "" + i);
                }

                @Override
                public void found(int i, String wrong) {
                  say(out, "found", i + " " + wrong);
                }
              });
      say(out, "end", "" + next);
    } catch (CardFailure | GpuException e) {
      say(out, "card", String.valueOf(e.getMessage()));
    } catch (Throwable e) { // of this process: no memory, no class; the kernels are not to blame
      say(out, "card", e.toString());
    }
    Runtime.getRuntime().halt(0); // whatever a failed driver still does
  }

  private static void say(PrintStream out, String what, String more) {
    String line = (what + " " + more).replaceAll("\\s+", " ");
    out.print("\n" + MARK + line + "\n");
    out.flush();
  }

  /** Standard input ends when the process that reads this one's messages does. */
  private static void endWithParent() {
    Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              try {
                while (System.in.read() >= 0) {
                  // nothing is sent
                }
              } catch (IOException e) {
                // as good as its end
              }
              Runtime.getRuntime().halt(1);
            });
  }
}
