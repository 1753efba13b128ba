package dev.loupe;

import dev.loupe.cuda.driver.CudaDriver;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Skips a test, with the reason, where there is neither the emulated driver nor a card. */
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@Tag("gpu")
@ExtendWith(OnGpu.Condition.class)
public @interface OnGpu {
  /** Looks at the driver of this process. */
  final class Condition implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
      CudaDriver driver = CudaDriver.find();
      return driver.cards().isEmpty()
          ? ConditionEvaluationResult.disabled(
              "needs a card, or the emulator of kernels: the driver is " + driver.summary())
          : ConditionEvaluationResult.enabled("on " + driver.cards().getFirst());
    }
  }
}
