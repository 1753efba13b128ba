package dev.loupe.cuda.kernels;

import dev.loupe.cuda.driver.Element;
import dev.loupe.cuda.driver.KernelChoice;
import dev.loupe.cuda.driver.Variant;
import java.util.List;
import java.util.Optional;

/** Which of the variants that take a shape serves. */
public enum Serving implements KernelChoice {
  /** The best by design. */
  BEST {
    @Override
    public Optional<Variant> of(List<Variant> candidates, Element element, int rows) {
      return UNTRIED.of(candidates, element, rows);
    }
  },
  /** The plainest. */
  PLAIN {
    @Override
    public Optional<Variant> of(List<Variant> candidates, Element element, int rows) {
      return Optional.of(candidates.getLast());
    }
  }
}
