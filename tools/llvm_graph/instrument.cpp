// A pass for clang 14 that has a program write down what it executes: which blocks, in which order, and the addresses of its memory
// operations. What the blocks consist of goes into the program as a text, which trace.c writes ahead of them.
//   TRACE_FUNCTIONS=step,other  instruments these functions alone; without it all
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

using namespace llvm;

namespace {

bool is_wanted(const Function& function) {
  const char* const list = std::getenv("TRACE_FUNCTIONS");
  if (list == nullptr || *list == '\0') return true;
  SmallVector<StringRef, 8> names;
  StringRef(list).split(names, ',');
  return is_contained(names, function.getName());
}

/// Calls that no code comes of.
bool is_nothing(const Instruction& instruction) {
  const auto* const call = dyn_cast<IntrinsicInst>(&instruction);
  return call != nullptr && (isa<DbgInfoIntrinsic>(call) || call->isAssumeLikeIntrinsic());
}

class TracedModule {
 public:
  explicit TracedModule(Module& module) : module_(module), out_(text_) {
    for (Function& function : module)
      if (!function.isDeclaration() && is_wanted(function)) functions_.emplace_back(&function);
  }

  bool run() {
    if (functions_.empty()) return false;
    for (Function* function : functions_) number(*function);
    for (Function* function : functions_) describe(*function);
    out_ << "end\n";
    out_.flush();
    Type* const nothing = Type::getVoidTy(module_.getContext());
    Type* const word = Type::getInt32Ty(module_.getContext());
    Type* const pointer = Type::getInt8PtrTy(module_.getContext());
    Type* const size = Type::getInt64Ty(module_.getContext());
    // A number of a module is known as it runs: constructors hand it out.
    auto* const base = new GlobalVariable(module_, word, false, GlobalValue::InternalLinkage,
                                          ConstantInt::get(word, 0), "trace.module");
    block_ = module_.getOrInsertFunction("trace_block", nothing, word, word);
    address_ = module_.getOrInsertFunction("trace_address", nothing, pointer);
    length_ = module_.getOrInsertFunction("trace_length", nothing, size);
    returned_ = module_.getOrInsertFunction("trace_returned", nothing);
    for (Function* function : functions_) instrument(*function, *base);
    add_constructor(*base, nothing, word, pointer);
    return true;
  }

 private:
  void number(Function& function) {
    function_ids_.insert({&function, function_ids_.size()});
    for (BasicBlock& block : function) {
      block_ids_.insert({&block, block_ids_.size()});
      for (Instruction& instruction : block)
        if (!is_nothing(instruction)) instruction_ids_.insert({&instruction, instruction_ids_.size()});
    }
  }

  /// Writes where an operand comes from: "i7", the argument "a0", or "-" for what no instruction computes.
  void refer(const Value* value) {
    if (const auto* instruction = dyn_cast<Instruction>(value); instruction_ids_.count(instruction) > 0)
      out_ << " i" << instruction_ids_.lookup(instruction);
    else if (const auto* argument = dyn_cast<Argument>(value))
      out_ << " a" << argument->getArgNo();
    else
      out_ << " -";
  }

  std::uint64_t bytes_of(Type* type) const {
    return module_.getDataLayout().getTypeStoreSize(type).getFixedSize();
  }

  void describe(Instruction& instruction) {
    if (isa<InvokeInst>(instruction) || isa<CallBrInst>(instruction))
      report_fatal_error(
          "trace: exceptions and jumps out of assembler are not followed: compile with -fno-exceptions");
    out_ << "I " << instruction.getOpcodeName();
    if (auto* load = dyn_cast<LoadInst>(&instruction)) {
      out_ << " load " << bytes_of(load->getType());
    } else if (auto* store = dyn_cast<StoreInst>(&instruction)) {
      out_ << " store " << bytes_of(store->getValueOperand()->getType());
    } else if (auto* both = dyn_cast<AtomicRMWInst>(&instruction)) {
      out_ << " both " << bytes_of(both->getValOperand()->getType());
    } else if (auto* swap = dyn_cast<AtomicCmpXchgInst>(&instruction)) {
      out_ << " both " << bytes_of(swap->getNewValOperand()->getType());
    } else if (isa<MemTransferInst>(instruction)) {
      out_ << " copy 0";
    } else if (isa<MemSetInst>(instruction)) {
      out_ << " set 0";
    } else if (auto* phi = dyn_cast<PHINode>(&instruction)) {
      out_ << " phi " << phi->getNumIncomingValues();
      for (unsigned i = 0; i < phi->getNumIncomingValues(); ++i) {
        out_ << ' ' << block_ids_.lookup(phi->getIncomingBlock(i));
        refer(phi->getIncomingValue(i));
      }
      out_ << '\n';
      return;
    } else if (isa<CallInst>(instruction) && !isa<IntrinsicInst>(instruction)) {
      const Function* const callee = cast<CallInst>(instruction).getCalledFunction();
      out_ << " call "
           << (callee != nullptr && function_ids_.count(callee) > 0
                   ? static_cast<int>(function_ids_.lookup(callee))
                   : -1);
    } else if (isa<ReturnInst>(instruction)) {
      out_ << " ret 0";
    } else {
      out_ << " other 0";
    }
    for (const Use& operand : instruction.operands()) {
      if (isa<BasicBlock>(operand) || isa<Function>(operand)) continue;
      refer(operand);
    }
    out_ << '\n';
  }

  void describe(Function& function) {
    out_ << "F " << function_ids_.lookup(&function) << ' ' << function.getName() << '\n';
    for (BasicBlock& block : function) {
      out_ << "B " << block_ids_.lookup(&block) << '\n';
      for (Instruction& instruction : block)
        if (!is_nothing(instruction)) describe(instruction);
    }
  }

  void call_address(IRBuilder<>& builder, Value* pointer) {
    builder.CreateCall(address_, builder.CreatePointerCast(pointer, builder.getInt8PtrTy()));
  }

  void instrument(Function& function, GlobalVariable& base) {
    for (BasicBlock& block : function) {
      std::vector<Instruction*> own;
      for (Instruction& instruction : block) own.push_back(&instruction);
      IRBuilder<> builder(&*block.getFirstInsertionPt());
      builder.CreateCall(block_, {builder.CreateLoad(builder.getInt32Ty(), &base),
                                  builder.getInt32(block_ids_.lookup(&block))});
      for (Instruction* instruction : own) {
        builder.SetInsertPoint(instruction);
        if (auto* load = dyn_cast<LoadInst>(instruction)) call_address(builder, load->getPointerOperand());
        if (auto* store = dyn_cast<StoreInst>(instruction)) call_address(builder, store->getPointerOperand());
        if (auto* both = dyn_cast<AtomicRMWInst>(instruction))
          call_address(builder, both->getPointerOperand());
        if (auto* swap = dyn_cast<AtomicCmpXchgInst>(instruction))
          call_address(builder, swap->getPointerOperand());
        if (auto* memory = dyn_cast<MemIntrinsic>(instruction)) {
          call_address(builder, memory->getRawDest());
          if (auto* transfer = dyn_cast<MemTransferInst>(memory))
            call_address(builder, transfer->getRawSource());
          builder.CreateCall(length_, builder.CreateZExtOrTrunc(memory->getLength(), builder.getInt64Ty()));
        }
        if (auto* call = dyn_cast<CallInst>(instruction); call != nullptr && !isa<IntrinsicInst>(call)) {
          call->setTailCallKind(CallInst::TCK_None);
          builder.SetInsertPoint(instruction->getNextNode());
          builder.CreateCall(returned_, {});
        }
      }
    }
  }

  void add_constructor(GlobalVariable& base, Type* nothing, Type* word, Type* pointer) {
    const FunctionCallee announce = module_.getOrInsertFunction("trace_module", word, pointer);
    auto* const function = Function::Create(FunctionType::get(nothing, false), GlobalValue::InternalLinkage,
                                            "trace.announce", module_);
    IRBuilder<> builder(BasicBlock::Create(module_.getContext(), "entry", function));
    Value* const text = builder.CreateGlobalStringPtr(text_, "trace.text", 0, &module_);
    builder.CreateStore(builder.CreateCall(announce, text), &base);
    builder.CreateRetVoid();
    appendToGlobalCtors(module_, function, 0);
  }

  Module& module_;
  std::vector<Function*> functions_;
  DenseMap<const Function*, unsigned> function_ids_;
  DenseMap<const BasicBlock*, unsigned> block_ids_;
  DenseMap<const Instruction*, unsigned> instruction_ids_;
  std::string text_;
  raw_string_ostream out_;
  FunctionCallee block_, address_, length_, returned_;
};

struct Instrument : PassInfoMixin<Instrument> {
  PreservedAnalyses run(Module& module, ModuleAnalysisManager&) {
    return TracedModule(module).run() ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }
};

}  // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "trace", LLVM_VERSION_STRING, [](PassBuilder& builder) {
            builder.registerOptimizerLastEPCallback(
                [](ModulePassManager& passes, OptimizationLevel) { passes.addPass(Instrument()); });
          }};
}
